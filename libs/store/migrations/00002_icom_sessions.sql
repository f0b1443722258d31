-- One row per slot holds the cursor of its stream and the term of its owner, so that a stale owner moves nothing. Creates only; locks nothing.

-- +goose Up
CREATE TABLE icom_sessions (
    channel    text COLLATE "C" NOT NULL CHECK (channel IN ('cpm', 'csm')),
    ispb       text COLLATE "C" NOT NULL CHECK (ispb ~ '^[0-9A-Z]{8}$'),
    slot       smallint    NOT NULL CHECK (slot BETWEEN 1 AND 6),
    state      text COLLATE "C" NOT NULL CHECK (state IN ('open', 'closed')),
    term       bigint      NOT NULL CHECK (term > 0),
    cursor     text        NOT NULL DEFAULT '',
    owner      text        NOT NULL,
    opened_at  timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (channel, ispb, slot),
    CONSTRAINT icom_sessions_closed CHECK (state = 'open' OR cursor = '')
) WITH (
    -- A few rows, each rewritten with every batch: almost the whole page is room for new versions.
    fillfactor = 10
);

COMMENT ON COLUMN icom_sessions.cursor IS 'where the next read goes on (PI-Pull-Next); empty opens a new stream';
COMMENT ON COLUMN icom_sessions.term IS 'grows with every owner; only the newest may move the cursor';

-- +goose Down
DROP TABLE icom_sessions;
