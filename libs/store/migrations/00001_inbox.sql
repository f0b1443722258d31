-- The inbox holds every message as received, once, until a consumer says it is done. Creates only; locks nothing.

-- +goose Up
CREATE TABLE inbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at  timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    closed_at    timestamptz,
    attempts     integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    state        text COLLATE "C" NOT NULL DEFAULT 'received'
                 CHECK (state IN ('received', 'published', 'done', 'dead')),
    msg_type     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL CHECK (source <> ''),
    message_id   text COLLATE "C" NOT NULL CHECK (message_id <> ''),
    payload      bytea COMPRESSION lz4 NOT NULL,

    CONSTRAINT inbox_once UNIQUE (message_id, source),
    CONSTRAINT inbox_closed CHECK ((closed_at IS NOT NULL) = (state IN ('done', 'dead'))),
    CONSTRAINT inbox_published CHECK (state <> 'published' OR published_at IS NOT NULL)
) WITH (
    -- Payloads live beside the rows, so that a mark rewrites a few hundred bytes; half of
    -- each page is left for the next version of its rows (heap-only updates touch no index).
    toast_tuple_target = 128,
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05
);

-- Everything not yet closed, oldest first: what the republisher and the sweep walk through. It names
-- closed_at and not state, so that marking a row published changes no indexed column.
CREATE INDEX inbox_open ON inbox (id) WHERE closed_at IS NULL;

COMMENT ON COLUMN inbox.source IS 'where it came from: icom:<channel>:<ispb>';
COMMENT ON COLUMN inbox.message_id IS 'the bank''s identifier of the delivery (PI-ResourceId)';
COMMENT ON COLUMN inbox.attempts IS 'how often it went out again after the first publication';
COMMENT ON COLUMN inbox.closed_at IS 'when it became done or dead';

-- +goose Down
DROP TABLE inbox;
