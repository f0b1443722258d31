-- What is to be said to the SPI is written with the effect that wants it said; what was said is kept as it was on the wire. Creates only; locks nothing.

-- +goose Up
-- One row per message as signed: a resend is of these very bytes.
CREATE TABLE outbound_messages (
    msg_id      text COLLATE "C" PRIMARY KEY CHECK (msg_id ~ '^M[0-9A-Z]{8}[0-9A-Za-z]{23}$'),
    channel     icom_channel NOT NULL,
    msg_type    text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL CHECK (state IN ('built', 'sent', 'unknown', 'refused', 'closed')),
    attempts    integer     NOT NULL DEFAULT 0,
    resource_ids text[] COLLATE "C" NOT NULL DEFAULT '{}',
    reason      text        NOT NULL DEFAULT '',
    built_at    timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    payload     bytea COMPRESSION lz4 NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX outbound_messages_open ON outbound_messages (updated_at) WHERE state IN ('built', 'unknown');
CREATE INDEX outbound_messages_resource ON outbound_messages USING gin (resource_ids);

COMMENT ON COLUMN outbound_messages.state IS 'built: not known to be sent; sent: 201; unknown: no answer; refused: nothing stored at the bank, or admi.002; closed: answered';
COMMENT ON COLUMN outbound_messages.attempts IS 'how often the bytes were put on the wire';
COMMENT ON COLUMN outbound_messages.resource_ids IS 'the bank''s PI-ResourceId of each attempt that was answered';

-- One row per operation: a transaction of a pacs.008, a status of a pacs.002, an enquiry.
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id   text COLLATE "C" NOT NULL,
    msg_type     text COLLATE "C" NOT NULL,
    channel      icom_channel NOT NULL,
    state        text COLLATE "C" NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done')),
    alone        boolean     NOT NULL DEFAULT false,
    body         jsonb COMPRESSION lz4 NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    msg_id       text COLLATE "C" REFERENCES outbound_messages (msg_id),
    done_at      timestamptz
) WITH (fillfactor = 60);

-- An order goes out once. Enquiries and echoes may be repeated.
CREATE UNIQUE INDEX outbox_once ON outbox (payment_id, msg_type) WHERE msg_type IN ('pacs.008', 'pacs.004', 'pacs.002');
CREATE INDEX outbox_open ON outbox (id) WHERE state = 'open';
CREATE INDEX outbox_message ON outbox (msg_id) WHERE msg_id IS NOT NULL;

COMMENT ON COLUMN outbox.payment_id IS 'EndToEndId or RtrId; of an echo or a question about the account: its own name';
COMMENT ON COLUMN outbox.alone IS 'goes in a message of its own, after a group with it was refused';
COMMENT ON COLUMN outbox.body IS 'the operation, as package iso20022 reads it';
COMMENT ON COLUMN outbox.published_at IS 'when it was last handed to the bus; null: never';
COMMENT ON COLUMN outbox.msg_id IS 'the message that carries it; null: none was built yet';
COMMENT ON COLUMN outbox.state IS 'done: its message is at the bank, or will never be';

-- +goose Down
DROP TABLE outbox;
DROP TABLE outbound_messages;
