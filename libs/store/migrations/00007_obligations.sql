-- What settles leaves an obligation, once per EndToEndId or RtrId, and until it is written a row that says it is due. Creates only; locks nothing.

-- +goose Up
CREATE TABLE obligations (
    payment_id payment_id        PRIMARY KEY,
    cycle_id   bigint            NOT NULL,
    late_from  bigint,
    kind       payment_kind      NOT NULL,
    direction  payment_direction NOT NULL,
    amount     centavos          NOT NULL,
    party      icom_ispb         NOT NULL,
    settled_at timestamptz       NOT NULL,
    created_at timestamptz       NOT NULL DEFAULT now()
);

CREATE INDEX obligations_cycle ON obligations (cycle_id);

COMMENT ON COLUMN obligations.payment_id IS 'EndToEndId of a payment, RtrId of a return';
COMMENT ON COLUMN obligations.cycle_id IS 'the cycle that nets it; no foreign key says so, because its check would cost more than the row, and whoever writes it has the cycle held open';
COMMENT ON COLUMN obligations.late_from IS 'the cycle to which it belongs by its time, which took nothing any more when it came; null: it is not late';
COMMENT ON COLUMN obligations.party IS 'whom it is settled with: the other participant, or the indirect participant of ours whose client it is';
COMMENT ON COLUMN obligations.settled_at IS 'the SPI''s time of settlement, as in payments';

-- Written by the statement that settles a payment and deleted by the one that writes its obligation: what the bus loses is
-- still here.
CREATE TABLE obligations_due (
    payment_id text COLLATE "C" PRIMARY KEY,
    settled_at timestamptz NOT NULL,
    next_at    timestamptz NOT NULL DEFAULT now(),
    attempts   integer     NOT NULL DEFAULT 0
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000
);

CREATE INDEX obligations_due_next ON obligations_due (next_at);

COMMENT ON COLUMN obligations_due.next_at IS 'when it is to be announced, for the first time or again';
COMMENT ON COLUMN obligations_due.attempts IS 'how often it was announced';

INSERT INTO obligations_due (payment_id, settled_at) SELECT id, settled_at FROM payments WHERE state = 'settled';

-- +goose Down
DROP TABLE obligations_due;
DROP TABLE obligations;
