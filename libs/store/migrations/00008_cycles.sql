-- A day's cycle is netted once: one row per date and type, windows that do not overlap, lines that are written when it closes. Creates only; locks nothing.

-- +goose Up
CREATE DOMAIN cycle_type AS text COLLATE "C" CHECK (VALUE ~ '^[a-z0-9_-]{1,32}$');
CREATE DOMAIN cycle_state AS text COLLATE "C" CHECK (VALUE IN ('open', 'sealed', 'closed'));

CREATE TABLE cycles (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cycle_date  date        NOT NULL,
    cycle_type  cycle_type  NOT NULL,
    opens_at    timestamptz NOT NULL,
    closes_at   timestamptz NOT NULL,
    state       cycle_state NOT NULL DEFAULT 'open',
    opened_term bigint      NOT NULL,
    opened_at   timestamptz NOT NULL DEFAULT now(),
    sealed_at   timestamptz,
    closed_term bigint,
    closed_at   timestamptz,
    obligations bigint,

    CONSTRAINT cycles_once UNIQUE (cycle_date, cycle_type),
    CONSTRAINT cycles_windows EXCLUDE USING gist (tstzrange(opens_at, closes_at) WITH &&),
    CONSTRAINT cycles_window CHECK (opens_at < closes_at),
    CONSTRAINT cycles_states CHECK (
        (state = 'open') = (sealed_at IS NULL)
        AND (state = 'closed') = (closed_at IS NOT NULL AND closed_term IS NOT NULL AND obligations IS NOT NULL)
    )
);

CREATE INDEX cycles_unclosed ON cycles (closes_at) WHERE state <> 'closed';
CREATE INDEX cycles_ends ON cycles (closes_at);

COMMENT ON COLUMN cycles.cycle_date IS 'the banking day on which it closes';
COMMENT ON COLUMN cycles.opens_at IS 'what settled from here, and before closes_at, belongs to it';
COMMENT ON COLUMN cycles.state IS 'open: takes obligations; sealed: takes none any more; closed: its lines are written';
COMMENT ON COLUMN cycles.opened_term IS 'the term of the leader that opened it';
COMMENT ON COLUMN cycles.obligations IS 'how many it netted';

CREATE TABLE nettings (
    cycle_id     bigint    NOT NULL REFERENCES cycles (id),
    party        icom_ispb NOT NULL,
    debits       centavos  NOT NULL,
    credits      centavos  NOT NULL,
    debit_count  bigint    NOT NULL,
    credit_count bigint    NOT NULL,
    net          bigint    NOT NULL GENERATED ALWAYS AS (credits - debits) STORED,

    PRIMARY KEY (cycle_id, party)
);

COMMENT ON COLUMN nettings.debits IS 'sum of what we paid: payments and returns that went out';
COMMENT ON COLUMN nettings.credits IS 'sum of what we were paid';

-- +goose Down
DROP TABLE nettings;
DROP TABLE cycles;
DROP DOMAIN cycle_state, cycle_type;
