-- What we were told late that it settled is found by when it was: few rows. Built beside the writers: locks none of them; what an attempt that failed left is dropped first.
-- +goose NO TRANSACTION

-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS obligations_belated;
CREATE INDEX CONCURRENTLY obligations_belated ON obligations (created_at) WHERE created_at - settled_at > interval '1 minute';

-- +goose Down
DROP INDEX CONCURRENTLY obligations_belated;
