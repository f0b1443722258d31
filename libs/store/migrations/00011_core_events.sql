-- What became of each payment request of the participant's core: one verdict per event, for good. Creates only; locks nothing.

-- +goose Up
CREATE TABLE core_events (
    id         text COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    request    bytea       NOT NULL CHECK (length(request) = 32),
    at         timestamptz NOT NULL DEFAULT now(),
    failures   integer     NOT NULL DEFAULT 0,
    payment_id payment_id,
    refusal    json COMPRESSION lz4,

    CONSTRAINT core_events_one_verdict CHECK (payment_id IS NULL OR refusal IS NULL)
) WITH (fillfactor = 90);

COMMENT ON COLUMN core_events.id IS 'the core''s name for the event; "sha256:..." for one without a name that can be read';
COMMENT ON COLUMN core_events.request IS 'SHA-256 of the event, byte for byte';
COMMENT ON COLUMN core_events.at IS 'of the verdict; without one, of the first failure';
COMMENT ON COLUMN core_events.failures IS 'how often we failed with it by a fault of our own';
COMMENT ON COLUMN core_events.payment_id IS 'the EndToEndId of the order that it became, by the transaction that booked it; null: none';
COMMENT ON COLUMN core_events.refusal IS 'why it became none, as the core was told; null with payment_id: no verdict yet';

-- +goose Down
DROP TABLE core_events;
