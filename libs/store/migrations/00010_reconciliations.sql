-- Our books are compared with the bank's account, period by period: what was asked, what was answered, and each line that differs. Creates only; locks nothing.

-- +goose Up
CREATE DOMAIN reconciliation_cause AS text COLLATE "C" CHECK (VALUE IN ('schedule', 'deploy', 'day', 'manual'));
CREATE DOMAIN reconciliation_mode AS text COLLATE "C" CHECK (VALUE IN ('observe', 'active'));
CREATE DOMAIN reconciliation_state AS text COLLATE "C" CHECK (VALUE IN ('asked', 'announced', 'importing', 'compared', 'failed'));
CREATE DOMAIN reconciliation_finding AS text COLLATE "C" CHECK (VALUE IN ('missing_here', 'missing_there', 'differing', 'doubled'));
CREATE DOMAIN reconciliation_subject AS text COLLATE "C" CHECK (VALUE IN ('entries', 'balance', 'entry'));

CREATE TABLE reconciliations (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cause            reconciliation_cause NOT NULL,
    version          text COLLATE "C"     NOT NULL DEFAULT '',
    mode             reconciliation_mode  NOT NULL,
    period_from      timestamptz          NOT NULL,
    period_to        timestamptz          NOT NULL,
    state            reconciliation_state NOT NULL DEFAULT 'asked',
    reason           text                 NOT NULL DEFAULT '',
    asked            integer              NOT NULL DEFAULT 0,
    asked_at         timestamptz,
    announced_at     timestamptz,
    fetched_at       timestamptz,
    compared_at      timestamptz,
    file_hash        text                 NOT NULL DEFAULT '',
    file_entries     bigint               NOT NULL DEFAULT 0,
    file_id          bigint,
    entries          bigint               NOT NULL DEFAULT 0,
    missing_here     bigint               NOT NULL DEFAULT 0,
    missing_there    bigint               NOT NULL DEFAULT 0,
    differing        bigint               NOT NULL DEFAULT 0,
    doubled          bigint               NOT NULL DEFAULT 0,
    unresolved       bigint               NOT NULL DEFAULT 0,
    balance          centavos,
    balance_at       timestamptz,
    balance_expected bigint,
    term             bigint               NOT NULL DEFAULT 0,
    created_at       timestamptz          NOT NULL DEFAULT now(),
    updated_at       timestamptz          NOT NULL DEFAULT now(),

    CONSTRAINT reconciliations_period CHECK (period_from < period_to),
    CONSTRAINT reconciliations_chain EXCLUDE USING gist (tstzrange(period_from, period_to) WITH &&)
        WHERE (cause IN ('schedule', 'deploy') AND state <> 'failed'),
    CONSTRAINT reconciliations_compared CHECK ((state = 'compared') = (compared_at IS NOT NULL) AND (state <> 'compared' OR file_id IS NOT NULL)),
    CONSTRAINT reconciliations_explained CHECK (state <> 'failed' OR reason <> ''),
    CONSTRAINT reconciliations_balance CHECK ((balance IS NULL) = (balance_at IS NULL))
);

-- A day is compared as a whole once.
CREATE UNIQUE INDEX reconciliations_day ON reconciliations (period_from) WHERE cause = 'day' AND state <> 'failed';
CREATE INDEX reconciliations_ends ON reconciliations (period_to) WHERE cause IN ('schedule', 'deploy') AND state <> 'failed';
CREATE INDEX reconciliations_open ON reconciliations (id) WHERE state NOT IN ('compared', 'failed');
CREATE INDEX reconciliations_unresolved ON reconciliations (id) WHERE unresolved > 0;

COMMENT ON COLUMN reconciliations.version IS 'the program that began it: another version begins one at once';
COMMENT ON COLUMN reconciliations.mode IS 'observe: what differs is listed; active: the SPI is asked about each line';
COMMENT ON COLUMN reconciliations.period_to IS 'the first instant that does not belong to it';
COMMENT ON COLUMN reconciliations.state IS 'asked: no answer yet; announced: the file can be fetched; importing: it is in the bucket; compared: its lines are written; failed: see reason';
COMMENT ON COLUMN reconciliations.asked IS 'how often the file was asked for, each time by a new question; 0: the leader asks at its next look';
COMMENT ON COLUMN reconciliations.file_hash IS 'AddtlRptInf of the camt.052';
COMMENT ON COLUMN reconciliations.unresolved IS 'lines without a resolution';
COMMENT ON COLUMN reconciliations.balance IS 'available and blocked together, at balance_at';
COMMENT ON COLUMN reconciliations.balance_expected IS 'what the balance of the reconciliation before and the entries since then come to; null: not covered by files yet';

-- The answer to a question carries the MsgId of the message that asked, which outbox has.
CREATE TABLE reconciliation_questions (
    operation_id      bigint                 PRIMARY KEY,
    reconciliation_id bigint                 NOT NULL REFERENCES reconciliations (id),
    subject           reconciliation_subject NOT NULL,
    payment_id        text COLLATE "C",
    asked_at          timestamptz            NOT NULL DEFAULT now(),
    answered_at       timestamptz,
    answer            text                   NOT NULL DEFAULT '',

    CONSTRAINT reconciliation_questions_subject CHECK ((subject = 'entry') = (payment_id IS NOT NULL))
);

CREATE INDEX reconciliation_questions_of ON reconciliation_questions (reconciliation_id, payment_id);

COMMENT ON COLUMN reconciliation_questions.operation_id IS 'the outbox''';
COMMENT ON COLUMN reconciliation_questions.answer IS 'the hash of a file, the kind of balance, or how an entry stands: BOOK, INFO and its code';

CREATE TABLE reconciliation_lines (
    reconciliation_id  bigint                 NOT NULL REFERENCES reconciliations (id),
    payment_id         text COLLATE "C"       NOT NULL,
    finding            reconciliation_finding NOT NULL,
    our_state          text COLLATE "C"       NOT NULL,
    our_direction      text COLLATE "C",
    our_amount         bigint,
    our_counterparty   text COLLATE "C",
    our_settled_at     timestamptz,
    their_entries      integer                NOT NULL,
    their_direction    text COLLATE "C",
    their_amount       bigint,
    their_counterparty text COLLATE "C",
    their_settled_at   timestamptz,
    asked              integer                NOT NULL DEFAULT 0,
    asked_at           timestamptz,
    answer             text                   NOT NULL DEFAULT '',
    answer_direction   text COLLATE "C",
    answer_amount      bigint,
    resolution         text                   NOT NULL DEFAULT '',
    resolved_at        timestamptz,

    PRIMARY KEY (reconciliation_id, payment_id, finding),
    CONSTRAINT reconciliation_lines_resolved CHECK ((resolution = '') = (resolved_at IS NULL))
);

CREATE INDEX reconciliation_lines_open ON reconciliation_lines (reconciliation_id, payment_id) WHERE resolved_at IS NULL;

COMMENT ON COLUMN reconciliation_lines.finding IS 'missing_here: they booked, we have nothing that settled; missing_there: we have it as settled, they have no entry; differing: both have it, otherwise; doubled: they have several entries';
COMMENT ON COLUMN reconciliation_lines.our_state IS 'empty: we do not know it';
COMMENT ON COLUMN reconciliation_lines.answer IS 'what the SPI said when asked about it; empty: not asked, or no answer yet';
COMMENT ON COLUMN reconciliation_lines.resolution IS 'settled: our books have it by now; confirmed: the SPI says what our books say; empty: open';

-- +goose Down
DROP TABLE reconciliation_lines;
DROP TABLE reconciliation_questions;
DROP TABLE reconciliations;
DROP DOMAIN reconciliation_subject, reconciliation_finding, reconciliation_state, reconciliation_mode, reconciliation_cause;
