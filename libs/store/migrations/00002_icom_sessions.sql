-- One row per slot holds the cursor of its stream and the term of its owner, so that a stale owner moves nothing. Creates only; locks nothing.

-- +goose Up
-- Domains, because a table's own CHECKs are parsed and run again with every batch that moves a cursor; a domain's only
-- where a value of it is written.
CREATE DOMAIN icom_channel AS text COLLATE "C" CHECK (VALUE IN ('cpm', 'csm'));
CREATE DOMAIN icom_ispb AS text COLLATE "C" CHECK (VALUE ~ '^[0-9A-Z]{8}$');
CREATE DOMAIN icom_slot AS smallint CHECK (VALUE BETWEEN 1 AND 6);
CREATE DOMAIN icom_term AS bigint CHECK (VALUE > 0);

CREATE TABLE icom_sessions (
    channel    icom_channel NOT NULL,
    ispb       icom_ispb    NOT NULL,
    slot       icom_slot    NOT NULL,
    term       icom_term    NOT NULL,
    is_open    boolean      NOT NULL,
    cursor     text         NOT NULL DEFAULT '',
    owner      text         NOT NULL,
    opened_at  timestamptz  NOT NULL DEFAULT now(),
    updated_at timestamptz  NOT NULL DEFAULT now(),

    PRIMARY KEY (channel, ispb, slot),
    CONSTRAINT icom_sessions_closed CHECK (is_open OR cursor = '')
) WITH (
    -- A few rows, each rewritten with every batch: almost the whole page is room for new versions.
    fillfactor = 10
);

COMMENT ON COLUMN icom_sessions.cursor IS 'where the next read goes on (PI-Pull-Next); empty opens a new stream';
COMMENT ON COLUMN icom_sessions.term IS 'grows with every owner; only the newest may move the cursor';

-- +goose Down
DROP TABLE icom_sessions;
DROP DOMAIN icom_term, icom_slot, icom_ispb, icom_channel;
