-- A period's settlements are found by their time. Built beside the writers: locks none of them; what an attempt that failed left is dropped first.
-- +goose NO TRANSACTION

-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS payments_settled;
CREATE INDEX CONCURRENTLY payments_settled ON payments (settled_at) WHERE settled_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY payments_settled;
