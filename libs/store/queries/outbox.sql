-- name: AddOperations :many
-- Index: outbox_once.
INSERT INTO outbox (payment_id, msg_type, channel, alone, body)
SELECT unnest(@payment_ids::text[]), unnest(@msg_types::text[]), unnest(@channels::text[]),
       unnest(@alone::boolean[]), unnest(@bodies::json[])
RETURNING id;

-- name: MarkOperationsPublished :execrows
-- It locks in the order of the keys, as every statement does that changes operations.
-- Index: outbox_pkey.
WITH handed AS (
    SELECT o.id FROM outbox AS o WHERE o.id = ANY(@ids::bigint[]) AND o.published_at IS NULL
    ORDER BY o.id
    FOR NO KEY UPDATE
)
UPDATE outbox SET published_at = now() WHERE id = ANY(ARRAY(SELECT handed.id FROM handed));

-- name: UnpublishedOperations :many
-- Index: outbox_waiting.
SELECT id, payment_id, msg_type, channel, alone, created_at, attempts
FROM outbox
WHERE msg_id IS NULL AND NOT closed AND published_at IS NULL AND created_at <= now() - @older_than::interval
ORDER BY id
LIMIT @at_most::integer;

-- name: StuckOperations :many
-- The wait doubles with each attempt, as in Stuck.
-- Index: outbox_waiting.
SELECT id, payment_id, msg_type, channel, alone, created_at, attempts
FROM outbox
WHERE msg_id IS NULL AND NOT closed
  AND published_at <= now() - least(power(2, least(attempts, 20)) * @first::interval, @most::interval)
ORDER BY id
LIMIT @at_most::integer;

-- name: OperationsRepublished :execrows
-- Two replicas that swept the same operations count them once: the second finds other attempts than it saw.
-- Index: outbox_pkey.
WITH seen AS (
    SELECT unnest(@ids::bigint[]) AS id,
           unnest(@attempts::integer[]) AS attempts
), again AS (
    SELECT o.id
    FROM seen
    JOIN outbox AS o ON o.id = seen.id
    WHERE o.id = ANY(@ids::bigint[]) AND o.published_at IS NOT NULL AND o.attempts = seen.attempts
    ORDER BY o.id
    FOR NO KEY UPDATE OF o
)
UPDATE outbox
SET published_at = now(), attempts = attempts + 1
WHERE id = ANY(ARRAY(SELECT again.id FROM again));

-- name: CloseAnsweredOperations :execrows
-- An order whose payment has ended is not sent any more: the answer came to an earlier message with it.
-- Index: outbox_waiting, payments_pkey.
WITH answered AS (
    SELECT o.id
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT final FROM payments WHERE payments.id = o.payment_id OFFSET 0) AS p
    WHERE o.msg_id IS NULL AND NOT o.closed AND o.msg_type IN ('pacs.008', 'pacs.004') AND p.final
    ORDER BY o.id
    FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outbox SET closed = true WHERE id = ANY(ARRAY(SELECT answered.id FROM answered));

-- name: OutboxBacklog :one
-- Index: outbox_waiting, outbound_messages_open.
SELECT count(*) FILTER (WHERE o.published_at IS NULL)::bigint AS created,
       count(*) FILTER (WHERE o.published_at IS NOT NULL)::bigint AS published,
       coalesce(max(o.attempts), 0)::bigint AS attempts,
       coalesce(extract(epoch FROM now() - min(o.created_at)), 0)::float8 AS lag_seconds,
       (SELECT count(*) FROM outbound_messages AS m WHERE m.state IN ('built', 'unknown'))::bigint AS doubtful,
       coalesce((SELECT extract(epoch FROM now() - min(m.built_at)) FROM outbound_messages AS m
           WHERE m.state IN ('built', 'unknown')), 0)::float8 AS doubtful_seconds
FROM outbox AS o
WHERE o.msg_id IS NULL AND NOT o.closed;
