-- name: AttemptMessages :many
-- Of two senders that hold the same message the second finds other attempts than it saw. A message all of whose orders
-- have ended does not go out, however long it was held.
-- Index: outbound_messages_pkey, outbox_message, payments_pkey.
WITH tried AS (
    SELECT unnest(@msg_ids::text[]) AS msg_id,
           unnest(@attempts::integer[]) AS attempts
), held AS (
    SELECT m.msg_id
    FROM tried
    JOIN outbound_messages AS m ON m.msg_id = tried.msg_id
    WHERE m.msg_id = ANY(@msg_ids::text[]) AND m.attempts = tried.attempts AND m.state IN ('built', 'unknown')
      AND (
          SELECT bool_or(p.final IS NOT TRUE) FROM outbox AS o
          LEFT JOIN LATERAL (
              SELECT final FROM payments WHERE payments.id = o.payment_id OFFSET 0
          ) AS p ON o.msg_type IN ('pacs.008', 'pacs.004')
          WHERE o.msg_id = m.msg_id)
    ORDER BY m.msg_id
    FOR NO KEY UPDATE OF m
)
UPDATE outbound_messages
SET attempts = attempts + 1, updated_at = now()
WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held))
RETURNING msg_id;

-- name: WithdrawMessages :exec
-- The attempts are compared, so that repeating it takes nothing away twice.
-- Index: outbound_messages_pkey.
WITH tried AS (
    SELECT unnest(@msg_ids::text[]) AS msg_id,
           unnest(@attempts::integer[]) AS attempts
), held AS (
    SELECT m.msg_id
    FROM tried
    JOIN outbound_messages AS m ON m.msg_id = tried.msg_id
    WHERE m.msg_id = ANY(@msg_ids::text[]) AND m.attempts = tried.attempts AND m.attempts > 0 AND m.state IN ('built', 'unknown')
    ORDER BY m.msg_id
    FOR NO KEY UPDATE OF m
)
UPDATE outbound_messages
SET attempts = attempts - 1, updated_at = CASE WHEN @release::boolean THEN 'epoch'::timestamptz ELSE now() END
WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held));

-- name: ReleaseMessages :exec
-- Index: outbound_messages_pkey.
WITH held AS (
    SELECT m.msg_id
    FROM outbound_messages AS m
    WHERE m.msg_id = ANY(@msg_ids::text[]) AND m.state IN ('built', 'unknown')
    ORDER BY m.msg_id
    FOR NO KEY UPDATE
)
UPDATE outbound_messages
SET updated_at = 'epoch'
WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held));

-- name: DueMessages :many
-- What one replica takes another does not get before the same time has passed again. A message all of whose orders have
-- ended is not there: the SPI has it.
-- Index: outbound_messages_open, outbox_message, payments_pkey.
WITH due AS (
    SELECT m.msg_id
    FROM outbound_messages AS m
    WHERE m.channel = @channel
      AND CASE m.state
          WHEN 'unknown' THEN m.attempts < @attempts::integer
              AND m.updated_at <= now() - least(power(2, greatest(least(m.attempts, 20) - 1, 0)) * @first::interval, @most::interval)
          WHEN 'built' THEN m.updated_at <= now() - @lost_after::interval
          ELSE false END
      AND m.state IN ('built', 'unknown')
      AND (
          SELECT bool_or(p.final IS NOT TRUE) FROM outbox AS o
          LEFT JOIN LATERAL (
              SELECT final FROM payments WHERE payments.id = o.payment_id OFFSET 0
          ) AS p ON o.msg_type IN ('pacs.008', 'pacs.004')
          WHERE o.msg_id = m.msg_id)
    ORDER BY m.updated_at
    LIMIT @at_most::integer
    FOR NO KEY UPDATE OF m SKIP LOCKED
)
UPDATE outbound_messages AS m
SET updated_at = now()
WHERE m.msg_id = ANY(ARRAY(SELECT due.msg_id FROM due))
RETURNING m.msg_id, m.channel, m.msg_type, m.state, m.attempts, m.reason, m.built_at, m.updated_at, m.payload,
          (SELECT array_agg(o.id ORDER BY o.id) FROM outbox AS o WHERE o.msg_id = m.msg_id)::bigint[] AS operations;

-- name: DiscardOperations :many
-- Operations that no message can carry. It answers the orders among them that were never in a message.
-- Index: outbox_pkey.
WITH held AS (
    SELECT o.id
    FROM outbox AS o
    WHERE o.id = ANY(@ids::bigint[]) AND o.msg_id IS NULL AND NOT o.closed
    ORDER BY o.id
    FOR NO KEY UPDATE
)
UPDATE outbox
SET closed = true
WHERE id = ANY(ARRAY(SELECT held.id FROM held))
RETURNING outbox.payment_id, (outbox.msg_type IN ('pacs.008', 'pacs.004') AND outbox.doubts = 0)::boolean AS undone;

-- name: EndExhausted :execrows
-- What was sent as often as may be goes out no more. Questions, echoes and answers are done with that: they are asked anew,
-- or their time is over. Of an order the SPI is asked; its message may have gone out until now.
-- Index: outbound_messages_open.
WITH exhausted AS (
    SELECT m.msg_id
    FROM outbound_messages AS m
    WHERE m.state IN ('built', 'unknown') AND m.state = 'unknown' AND m.attempts >= @attempts::integer
      AND m.updated_at <= now() - @older_than::interval
    ORDER BY m.updated_at
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outbound_messages
SET state = CASE WHEN msg_type IN ('pacs.008', 'pacs.004') THEN 'spent' ELSE 'closed' END, updated_at = now()
WHERE msg_id = ANY(ARRAY(SELECT exhausted.msg_id FROM exhausted));

-- name: OutboundDoubts :many
-- Index: outbound_messages_open, outbound_messages_spent.
SELECT m.channel::text AS channel,
       count(*) FILTER (WHERE m.state = 'built')::bigint AS built,
       count(*) FILTER (WHERE m.state <> 'built')::bigint AS unknown,
       count(*) FILTER (WHERE m.state = 'spent' OR m.state = 'unknown' AND m.attempts >= @attempts::integer)::bigint AS exhausted,
       extract(epoch FROM now() - min(m.built_at))::float8 AS oldest_seconds
FROM outbound_messages AS m
WHERE m.state IN ('built', 'unknown') OR m.state = 'spent'
GROUP BY m.channel;
