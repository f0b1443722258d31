-- The inbox holds every message as received, once; inbox_open says which of them are not closed yet. Creates only; locks nothing.

-- +goose Up
-- One number per batch. A message's id is its batch's number and its position in it, so that the rows can be inserted
-- in the order of their keys and still be told apart in the order of arrival.
CREATE SEQUENCE inbox_batch AS bigint INCREMENT BY 100 START WITH 100;

-- A domain, because a table's own CHECKs are parsed again by every statement that inserts.
CREATE DOMAIN inbox_key AS text COLLATE "C" CHECK (VALUE <> '');
CREATE DOMAIN inbox_attempts AS integer CHECK (VALUE >= 0);

-- Written once and never again: a message is as large as all marks on it together are not.
CREATE TABLE inbox (
    id          bigint      NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    msg_type    text COLLATE "C" NOT NULL,
    source      inbox_key   NOT NULL,
    message_id  inbox_key   NOT NULL,
    payload     bytea COMPRESSION lz4 NOT NULL,

    CONSTRAINT inbox_once PRIMARY KEY (message_id, source)
);

COMMENT ON COLUMN inbox.id IS 'grows with arrival within one slot''s stream';
COMMENT ON COLUMN inbox.source IS 'where it came from: icom:<channel>:<ispb>';
COMMENT ON COLUMN inbox.message_id IS 'the bank''s identifier of the delivery (PI-ResourceId)';

-- One narrow row per message that is not done and not dead, so that marking one published rewrites a hundred bytes and
-- no index, and closing it leaves nothing. Receive inserts it with the message, in one statement; no foreign key says so,
-- because its check would cost more than the row.
CREATE TABLE inbox_open (
    id           bigint      PRIMARY KEY,
    received_at  timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    attempts     inbox_attempts NOT NULL DEFAULT 0,
    failures     inbox_attempts NOT NULL DEFAULT 0,
    source       text COLLATE "C" NOT NULL,
    message_id   text COLLATE "C" NOT NULL
) WITH (
    -- Half of each page is room for the published versions of its rows.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000
);

COMMENT ON COLUMN inbox_open.published_at IS 'when it was last handed to the bus; null: received only';
COMMENT ON COLUMN inbox_open.attempts IS 'how often it went out again after the first publication';
COMMENT ON COLUMN inbox_open.failures IS 'how often its consumer failed with it by a fault of its own';

-- +goose Down
DROP TABLE inbox_open;
DROP TABLE inbox;
DROP DOMAIN inbox_attempts, inbox_key;
DROP SEQUENCE inbox_batch;
