-- One row per payment or return, moved only by compare-and-set, with every move explained beside it. Creates only; locks nothing.

-- +goose Up
CREATE DOMAIN payment_id AS text COLLATE "C" CHECK (VALUE ~ '^[ED][0-9A-Z]{8}[0-9]{12}[0-9A-Za-z]{11}$');
CREATE DOMAIN payment_kind AS text COLLATE "C" CHECK (VALUE IN ('payment', 'return'));
CREATE DOMAIN payment_direction AS text COLLATE "C" CHECK (VALUE IN ('out', 'in'));
CREATE DOMAIN payment_state AS text COLLATE "C"
    CHECK (VALUE IN ('created', 'sent', 'unknown', 'accepted', 'settled', 'rejected'));
CREATE DOMAIN centavos AS bigint CHECK (VALUE BETWEEN 0 AND 999999999999999999);

-- The key is what the SPI itself keys on, so that whatever arrives twice is booked once.
CREATE TABLE payments (
    id           payment_id        PRIMARY KEY,
    kind         payment_kind      NOT NULL,
    direction    payment_direction NOT NULL,
    state        payment_state     NOT NULL,
    amount       centavos          NOT NULL,
    returned     centavos          NOT NULL DEFAULT 0,
    channel      icom_channel      NOT NULL,
    counterparty icom_ispb         NOT NULL,
    original_id  payment_id,
    client_id    text COLLATE "C",
    reason       text COLLATE "C"  NOT NULL DEFAULT '',
    detail       text              NOT NULL DEFAULT '',
    document     json COMPRESSION lz4 NOT NULL,
    accepted_at  timestamptz       NOT NULL,
    created_at   timestamptz       NOT NULL DEFAULT now(),
    updated_at   timestamptz       NOT NULL DEFAULT now(),
    settled_at   timestamptz,
    final        boolean           NOT NULL GENERATED ALWAYS AS (state IN ('settled', 'rejected')) STORED,

    CONSTRAINT payments_amounts CHECK (amount > 0 AND returned <= amount),
    CONSTRAINT payments_return CHECK ((kind = 'return') = (original_id IS NOT NULL)),
    CONSTRAINT payments_settled CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CONSTRAINT payments_sides CHECK (CASE direction WHEN 'in' THEN state NOT IN ('created', 'sent', 'unknown') ELSE state <> 'accepted' END)
) WITH (fillfactor = 70);

COMMENT ON COLUMN payments.id IS 'EndToEndId of a payment, RtrId of a return';
COMMENT ON COLUMN payments.returned IS 'sum of the returns of this payment that were not rejected';
COMMENT ON COLUMN payments.counterparty IS 'ISPB of the other participant';
COMMENT ON COLUMN payments.original_id IS 'the payment that is returned; it exists, unless the return was rejected on arrival';
COMMENT ON COLUMN payments.client_id IS 'the name that a client gave a return (PUT .../devolucao/{id})';
COMMENT ON COLUMN payments.document IS 'the order as the SPI''s message carries it';
COMMENT ON COLUMN payments.accepted_at IS 'AccptncDtTm: from here the SPI counts its 40 s';
COMMENT ON COLUMN payments.settled_at IS 'FctvIntrBkSttlmDt of the SPI';

-- What is not final is few, and is what sweeps and alarms look at. Neither its key nor its condition changes before the
-- end, so that a payment that was sent is rewritten in its page.
CREATE INDEX payments_open ON payments (created_at) WHERE NOT final;
CREATE INDEX payments_listed ON payments (created_at, id);
CREATE UNIQUE INDEX payments_client ON payments (original_id, client_id) WHERE original_id IS NOT NULL;

CREATE TABLE payment_events (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    payment_id text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    was        text COLLATE "C" NOT NULL,
    became     text COLLATE "C" NOT NULL,
    who        text NOT NULL,
    reason     text NOT NULL,
    detail     text NOT NULL,

    PRIMARY KEY (payment_id, id)
);

COMMENT ON COLUMN payment_events.was IS 'the state before; empty at the beginning';
COMMENT ON COLUMN payment_events.became IS 'the state after; the same as was for what was noted and moved nothing';
COMMENT ON COLUMN payment_events.who IS 'api, core, spi, icom, or the service whose rule decided';

-- An answer is kept with its key, so that the same order given twice is one order with one answer.
CREATE TABLE idempotency_keys (
    key        text COLLATE "C" PRIMARY KEY,
    request    bytea       NOT NULL CHECK (length(request) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    status     integer,
    answer     bytea COMPRESSION lz4
) WITH (fillfactor = 70);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

COMMENT ON COLUMN idempotency_keys.request IS 'SHA-256 of method, path and body';
COMMENT ON COLUMN idempotency_keys.status IS 'null while the first request is in progress';

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE payment_events;
DROP TABLE payments;
DROP DOMAIN centavos, payment_state, payment_direction, payment_kind, payment_id;
