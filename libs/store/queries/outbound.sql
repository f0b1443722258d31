-- name: ClaimOperations :many
-- An order whose payment has ended is not there. OFFSET as in Unpublished: here and below each table is reached by its
-- keys, whatever the planner believed of it when it was small.
-- Index: outbox_pkey, payments_pkey.
SELECT o.id, o.payment_id, o.msg_type, o.channel, o.alone, o.created_at, o.attempts,
       coalesce(o.msg_id, '')::text AS msg_id, o.body
FROM outbox AS o
LEFT JOIN LATERAL (
    SELECT final FROM payments WHERE payments.id = o.payment_id OFFSET 0
) AS p ON o.msg_type IN ('pacs.008', 'pacs.004')
WHERE o.id = ANY(@ids::bigint[]) AND NOT o.closed AND p.final IS NOT TRUE
ORDER BY o.id;

-- name: OpenMessages :many
-- Index: outbound_messages_pkey, outbox_message.
SELECT m.msg_id, m.channel, m.msg_type, m.state, m.attempts, m.reason, m.built_at, m.updated_at, m.payload,
       (SELECT array_agg(o.id ORDER BY o.id) FROM outbox AS o WHERE o.msg_id = m.msg_id)::bigint[] AS operations
FROM outbound_messages AS m
WHERE m.msg_id = ANY(@msg_ids::text[]) AND m.state IN ('built', 'unknown')
ORDER BY m.msg_id;

-- name: BuildMessages :many
-- A message is stored if each of its operations is free; if it carries them all already, this was done before. It
-- answers which messages there are now.
-- Index: outbox_pkey, outbound_messages_pkey.
WITH drafts AS (
    SELECT unnest(@msg_ids::text[]) AS msg_id,
           unnest(@channels::text[]) AS channel,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@attempts::integer[]) AS attempts,
           unnest(@payloads::bytea[]) AS payload
), wanted AS (
    SELECT unnest(@operation_ids::bigint[]) AS id,
           unnest(@carriers::text[]) AS msg_id
), held AS (
    SELECT o.id, o.msg_id, o.closed
    FROM outbox AS o
    WHERE o.id = ANY(@operation_ids::bigint[])
    ORDER BY o.id
    FOR NO KEY UPDATE
), complete AS (
    SELECT wanted.msg_id, bool_and(held.msg_id IS NULL) AS fresh
    FROM wanted
    LEFT JOIN held ON held.id = wanted.id
    GROUP BY wanted.msg_id
    HAVING bool_and(held.id IS NOT NULL AND held.msg_id IS NULL AND NOT held.closed)
        OR bool_and(held.msg_id IS NOT NULL AND held.msg_id = wanted.msg_id)
           AND EXISTS (SELECT FROM outbound_messages AS m WHERE m.msg_id = wanted.msg_id AND m.state = 'built')
), built AS (
    INSERT INTO outbound_messages (msg_id, channel, msg_type, attempts, payload)
    SELECT drafts.msg_id, drafts.channel, drafts.msg_type, drafts.attempts, drafts.payload
    FROM drafts
    JOIN complete ON complete.msg_id = drafts.msg_id
    WHERE complete.fresh
), carried AS (
    UPDATE outbox
    SET msg_id = wanted.msg_id
    FROM wanted
    JOIN complete ON complete.msg_id = wanted.msg_id
    WHERE outbox.id = wanted.id AND outbox.id = ANY(@operation_ids::bigint[]) AND complete.fresh
)
SELECT complete.msg_id::text AS msg_id FROM complete;

-- name: MarkSent :exec
-- Messages, then payments, each locked in the order of its keys, and looked at as they stand then.
-- Index: outbound_messages_pkey, outbound_receipts_pkey, outbox_message, payments_pkey.
WITH posted AS (
    SELECT unnest(@msg_ids::text[]) AS msg_id,
           unnest(@resource_ids::text[]) AS resource_id
), held AS (
    SELECT m.msg_id, m.state
    FROM outbound_messages AS m
    WHERE m.msg_id = ANY(@msg_ids::text[])
    ORDER BY m.msg_id
    FOR NO KEY UPDATE
), sent AS (
    UPDATE outbound_messages
    SET state = 'sent', reason = '', updated_at = now()
    WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held WHERE held.state IN ('built', 'unknown', 'spent')))
), named AS (
    INSERT INTO outbound_receipts (resource_id, msg_id)
    SELECT posted.resource_id, posted.msg_id FROM posted WHERE posted.resource_id <> ''
    ORDER BY posted.resource_id
    ON CONFLICT DO NOTHING
), carried AS (
    SELECT o.payment_id, o.msg_id
    FROM held
    CROSS JOIN LATERAL (SELECT * FROM outbox WHERE outbox.msg_id = held.msg_id OFFSET 0) AS o
    WHERE o.msg_type IN ('pacs.008', 'pacs.004')
), orders AS (
    SELECT p.id, p.state
    FROM payments AS p
    WHERE p.id = ANY(ARRAY(SELECT carried.payment_id FROM carried))
    ORDER BY p.id
    FOR NO KEY UPDATE
), moved AS (
    UPDATE payments
    SET state = 'sent', reason = '', detail = '', updated_at = now()
    WHERE id = ANY(ARRAY(SELECT orders.id FROM orders WHERE orders.state IN ('created', 'unknown')))
)
INSERT INTO payment_events (payment_id, was, became, who, reason, detail)
SELECT orders.id, orders.state, 'sent', 'icom', '', carried.msg_id
FROM orders
JOIN carried ON carried.payment_id = orders.id
WHERE orders.state IN ('created', 'unknown');

-- name: MarkUnknown :many
-- It answers the orders that the messages carry.
-- Index: outbound_messages_pkey, outbox_message.
WITH held AS (
    SELECT m.msg_id, m.state
    FROM outbound_messages AS m
    WHERE m.msg_id = ANY(@msg_ids::text[])
    ORDER BY m.msg_id
    FOR NO KEY UPDATE
), unknown AS (
    UPDATE outbound_messages
    SET state = 'unknown', reason = @reason, updated_at = now()
    WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held WHERE held.state IN ('built', 'unknown')))
)
SELECT o.payment_id, o.msg_id::text AS msg_id
FROM held
CROSS JOIN LATERAL (SELECT * FROM outbox WHERE outbox.msg_id = held.msg_id OFFSET 0) AS o
WHERE held.state IN ('built', 'unknown') AND o.msg_type IN ('pacs.008', 'pacs.004');

-- name: MarkRefused :many
-- It answers what the messages carry of payments, and whether the refused attempt was the only one.
-- Index: outbound_messages_pkey, outbox_message.
WITH held AS (
    SELECT m.msg_id, m.state, m.attempts
    FROM outbound_messages AS m
    WHERE m.msg_id = ANY(@msg_ids::text[])
    ORDER BY m.msg_id
    FOR NO KEY UPDATE
), refused AS (
    UPDATE outbound_messages
    SET state = 'refused', reason = @reason, updated_at = now()
    WHERE msg_id = ANY(ARRAY(SELECT held.msg_id FROM held WHERE held.state IN ('built', 'unknown', 'spent', 'sent')))
)
SELECT o.payment_id, o.msg_type, o.msg_id::text AS msg_id, (o.doubts + held.attempts <= 1)::boolean AS only
FROM held
CROSS JOIN LATERAL (SELECT * FROM outbox WHERE outbox.msg_id = held.msg_id OFFSET 0) AS o
WHERE held.state IN ('built', 'unknown', 'spent', 'sent') AND o.msg_type IN ('pacs.008', 'pacs.004', 'pacs.002');

-- name: CloseAnsweredMessages :execrows
-- Nobody resends a message all of whose orders have ended: the SPI has it.
-- Index: outbound_messages_open, outbound_messages_spent, outbox_message, payments_pkey.
WITH answered AS (
    SELECT m.msg_id
    FROM outbound_messages AS m
    WHERE (m.state IN ('built', 'unknown') OR m.state = 'spent') AND m.updated_at <= now() - @older_than::interval
      AND (
          SELECT bool_and(p.final IS TRUE) FROM outbox AS o
          LEFT JOIN LATERAL (
              SELECT final FROM payments WHERE payments.id = o.payment_id OFFSET 0
          ) AS p ON o.msg_type IN ('pacs.008', 'pacs.004')
          WHERE o.msg_id = m.msg_id)
    ORDER BY m.updated_at
    FOR NO KEY UPDATE OF m SKIP LOCKED
)
UPDATE outbound_messages
SET state = 'closed', updated_at = now()
WHERE msg_id = ANY(ARRAY(SELECT answered.msg_id FROM answered));

-- name: SplitMessage :many
-- Messages, operations, payments, each locked in the order of its keys. What has ended meanwhile is not sent again. The
-- attempts grow, so that the bus does not take the publication for the one before. It answers what the group carried, and what
-- of it had settled although the refused attempt was the only one.
-- Index: outbound_messages_pkey, outbox_message, payments_pkey.
WITH refused AS (
    UPDATE outbound_messages AS m
    SET state = 'refused', reason = @reason, updated_at = now()
    WHERE m.msg_id = @msg_id::text AND m.state <> 'refused'
      AND (SELECT count(*) FROM outbox AS o WHERE o.msg_id = @msg_id::text) > 1
    RETURNING m.msg_id, m.attempts
), carried AS (
    SELECT o.id, o.payment_id, o.msg_type, o.doubts, (SELECT refused.attempts FROM refused) AS attempts
    FROM outbox AS o
    WHERE o.id = ANY(ARRAY(SELECT c.id FROM outbox AS c WHERE c.msg_id = (SELECT refused.msg_id FROM refused)))
    ORDER BY o.id
    FOR NO KEY UPDATE
), held AS (
    SELECT p.id, p.state, p.final
    FROM payments AS p
    WHERE p.id = ANY(ARRAY(SELECT carried.payment_id FROM carried))
    ORDER BY p.id
    FOR NO KEY UPDATE
), touched AS (
    UPDATE payments SET updated_at = now() WHERE id = ANY(ARRAY(SELECT held.id FROM held WHERE NOT held.final))
), noted AS (
    INSERT INTO payment_events (payment_id, was, became, who, reason, detail)
    SELECT held.id, held.state, held.state, 'spi', @reason, @msg_id FROM held
), apart AS (
    UPDATE outbox
    SET msg_id = NULL, alone = true, published_at = NULL, attempts = outbox.attempts + 1,
        doubts = outbox.doubts + greatest(carried.attempts - 1, 0)
    FROM carried
    LEFT JOIN held ON held.id = carried.payment_id
    WHERE outbox.id = carried.id AND outbox.id = ANY(ARRAY(SELECT carried.id FROM carried))
      AND NOT (held.final IS TRUE AND carried.msg_type IN ('pacs.008', 'pacs.004'))
)
SELECT carried.payment_id, coalesce(held.state = 'settled' AND carried.doubts + carried.attempts <= 1, false)::boolean AS contradicted
FROM carried
LEFT JOIN held ON held.id = carried.payment_id
ORDER BY carried.id;

-- name: MessageState :one
-- Index: outbound_messages_pkey.
SELECT state::text AS state FROM outbound_messages WHERE msg_id = @msg_id::text;

-- name: MessageByResource :one
-- Index: outbound_receipts_pkey, outbound_messages_pkey, outbox_message.
SELECT m.msg_id, m.channel, m.msg_type, m.state, m.attempts, m.reason, m.built_at, m.updated_at, m.payload,
       (SELECT array_agg(o.id ORDER BY o.id) FROM outbox AS o WHERE o.msg_id = m.msg_id)::bigint[] AS operations
FROM outbound_messages AS m
WHERE m.msg_id = coalesce((SELECT r.msg_id FROM outbound_receipts AS r WHERE r.resource_id = @id::text), @id::text);

-- name: OperationsOf :many
-- Index: outbox_message.
SELECT id, payment_id, msg_type, channel, alone, created_at, attempts, coalesce(msg_id, '')::text AS msg_id, body
FROM (SELECT * FROM outbox AS o WHERE o.msg_id = @carrier::text OFFSET 0) AS carried
ORDER BY id;

-- name: HoldPayment :exec
-- Index: payments_pkey.
SELECT FROM payments WHERE id = @id::text FOR NO KEY UPDATE;

-- name: OrderSends :one
-- Index: outbox_once, outbound_messages_pkey.
SELECT coalesce(sum(o.doubts + coalesce(m.attempts, 0)), 0)::bigint AS sends,
       coalesce(bool_or(o.msg_id IS NULL AND NOT o.closed OR m.state IN ('built', 'unknown')), false)::boolean AS open
FROM outbox AS o
LEFT JOIN LATERAL (
    SELECT attempts, state FROM outbound_messages WHERE outbound_messages.msg_id = o.msg_id OFFSET 0
) AS m ON true
WHERE o.payment_id = @payment_id AND o.msg_type IN ('pacs.008', 'pacs.004');
