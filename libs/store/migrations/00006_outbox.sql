-- What is to be said to the SPI is written with the effect that wants it said; what was said is kept as it was on the wire. Creates only; locks nothing.

-- +goose Up
CREATE DOMAIN outbound_msg_id AS text COLLATE "C" CHECK (VALUE ~ '^M[0-9A-Z]{8}[0-9A-Za-z]{23}$');
CREATE DOMAIN outbound_state AS text COLLATE "C" CHECK (VALUE IN ('built', 'sent', 'unknown', 'spent', 'refused', 'closed'));

-- One row per message as signed: a resend is of these very bytes.
CREATE TABLE outbound_messages (
    msg_id     outbound_msg_id PRIMARY KEY,
    channel    icom_channel   NOT NULL,
    msg_type   text COLLATE "C" NOT NULL,
    state      outbound_state NOT NULL DEFAULT 'built',
    attempts   integer        NOT NULL,
    reason     text           NOT NULL DEFAULT '',
    built_at   timestamptz    NOT NULL DEFAULT now(),
    updated_at timestamptz    NOT NULL DEFAULT now(),
    payload    bytea COMPRESSION lz4 NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX outbound_messages_open ON outbound_messages (updated_at) WHERE state IN ('built', 'unknown');
CREATE INDEX outbound_messages_spent ON outbound_messages (updated_at) WHERE state = 'spent';

COMMENT ON COLUMN outbound_messages.state IS 'built: not known to be sent; sent: 201; unknown: no answer; spent: no answer, and not sent again; refused: 4xx, or admi.002; closed: its payments ended before a 201 was seen';
COMMENT ON COLUMN outbound_messages.attempts IS 'how often the bytes were put on the wire, or were about to be';

-- The bank names each attempt that it answered; an admi.002 may come under that name.
CREATE TABLE outbound_receipts (
    resource_id text COLLATE "C" PRIMARY KEY,
    msg_id      text COLLATE "C" NOT NULL
);

COMMENT ON COLUMN outbound_receipts.resource_id IS 'PI-ResourceId';

-- One row per operation: a transaction of a pacs.008, a status of a pacs.002, an enquiry. It waits while no message
-- carries it; from then on the message says how it stands. No foreign key says that the message exists, because its check
-- would cost more than the mark: one statement writes both.
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment_id   text COLLATE "C" NOT NULL,
    msg_type     text COLLATE "C" NOT NULL,
    channel      icom_channel NOT NULL,
    msg_id       text COLLATE "C",
    alone        boolean     NOT NULL DEFAULT false,
    closed       boolean     NOT NULL DEFAULT false,
    doubts       integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    body         json COMPRESSION lz4 NOT NULL
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000
);

-- An order goes out once. Enquiries and echoes may be repeated.
CREATE UNIQUE INDEX outbox_once ON outbox (payment_id, msg_type) WHERE msg_type IN ('pacs.008', 'pacs.004', 'pacs.002');
CREATE INDEX outbox_waiting ON outbox (id) WHERE msg_id IS NULL AND NOT closed;
CREATE INDEX outbox_message ON outbox (msg_id) WHERE msg_id IS NOT NULL;

COMMENT ON COLUMN outbox.payment_id IS 'EndToEndId or RtrId; of an echo or a question about the account: its own name';
COMMENT ON COLUMN outbox.msg_id IS 'the message that carries it; null: none';
COMMENT ON COLUMN outbox.alone IS 'goes in a message of its own, after a group with it was refused';
COMMENT ON COLUMN outbox.closed IS 'no message will carry it: its payment ended without one, or it was given up';
COMMENT ON COLUMN outbox.doubts IS 'attempts of earlier messages that carried it, of which it is not known how they ended';
COMMENT ON COLUMN outbox.published_at IS 'when it was last handed to the bus; null: never, or not since its group was refused';
COMMENT ON COLUMN outbox.attempts IS 'how often it went to the bus again';
COMMENT ON COLUMN outbox.body IS 'the operation, as package iso20022 reads it';

-- +goose Down
DROP TABLE outbox;
DROP TABLE outbound_receipts;
DROP TABLE outbound_messages;
DROP DOMAIN outbound_state, outbound_msg_id;
