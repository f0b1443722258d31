-- Leadership terms are minted here, one strictly growing number per name, so that a write can refuse a deposed leader. Creates only; locks nothing.

-- +goose Up
CREATE TABLE leader_terms (
    name      text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    term      bigint      NOT NULL CHECK (term > 0),
    owner     text        NOT NULL,
    minted_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE leader_terms;
