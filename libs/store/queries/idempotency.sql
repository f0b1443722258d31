-- name: BeginKey :one
-- A key whose first request never finished is handed on after a while: it had no effect, since Finish is in its
-- transaction.
-- Index: idempotency_keys_pkey.
WITH begun AS (
    INSERT INTO idempotency_keys AS k (key, request)
    VALUES (@key, @request)
    ON CONFLICT (key) DO UPDATE
    SET created_at = now()
    WHERE k.status IS NULL AND k.request = excluded.request AND k.created_at <= now() - @abandoned_after::interval
    RETURNING key
)
SELECT EXISTS (SELECT FROM begun) AS fresh, (k.key IS NOT NULL)::boolean AS known,
       coalesce(k.request = @request, false)::boolean AS same,
       coalesce(k.status, 0)::integer AS status, k.answer
FROM (SELECT @key::text AS key) AS asked
LEFT JOIN idempotency_keys AS k ON k.key = asked.key;

-- name: FinishKey :execrows
-- Index: idempotency_keys_pkey.
UPDATE idempotency_keys SET status = @status::integer, answer = @answer WHERE key = @key AND status IS NULL;

-- name: AbandonKey :execrows
-- Index: idempotency_keys_pkey.
DELETE FROM idempotency_keys WHERE key = @key AND status IS NULL;

-- name: PurgeKeys :execrows
-- Index: idempotency_keys_age.
DELETE FROM idempotency_keys
WHERE key = ANY(ARRAY(
    SELECT k.key FROM idempotency_keys AS k WHERE k.created_at <= now() - @older_than::interval
    ORDER BY k.created_at LIMIT 10000 FOR UPDATE SKIP LOCKED
));
