-- What could not be processed is kept with its reason, so that nothing is dropped silently. Creates only; locks nothing.

-- +goose Up
CREATE TABLE dead_letters (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    buried_at  timestamptz NOT NULL DEFAULT now(),
    inbox_id   bigint,
    source     text COLLATE "C" NOT NULL CHECK (source <> ''),
    message_id text COLLATE "C" NOT NULL,
    msg_type   text COLLATE "C" NOT NULL,
    reason     text        NOT NULL CHECK (reason <> ''),
    payload    bytea COMPRESSION lz4 NOT NULL,

    CONSTRAINT dead_letters_inbox UNIQUE (inbox_id)
);

-- A poisoned message that the bank delivers again is one dead letter; other content under the same identifier is
-- another. One without an identifier cannot be recognised.
CREATE UNIQUE INDEX dead_letters_once ON dead_letters (message_id, source, sha256(payload)) WHERE message_id <> '';

COMMENT ON COLUMN dead_letters.inbox_id IS 'null for a message that was never taken in';
COMMENT ON COLUMN dead_letters.message_id IS 'empty when the bank sent no identifier';

-- +goose Down
DROP TABLE dead_letters;
