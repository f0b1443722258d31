-- name: PurgeDeadLetters :execrows
-- They are buried in the order of their numbers, so the oldest are the first.
-- Index: dead_letters_pkey.
DELETE FROM dead_letters
WHERE buried_at <= now() - @older_than::interval AND id = ANY(ARRAY(
    SELECT d.id FROM dead_letters AS d WHERE d.id > 0 ORDER BY d.id LIMIT 1000 FOR UPDATE SKIP LOCKED
));

-- name: ExpireOrders :many
-- An order that no message ever carried: nothing of it was on the wire. Whoever is building a message with it has its row,
-- which is then passed over.
-- Index: outbox_waiting, payments_pkey.
WITH stale AS (
    SELECT o.id, o.payment_id
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT state FROM payments WHERE payments.id = o.payment_id OFFSET 0) AS p
    WHERE o.msg_id IS NULL AND NOT o.closed AND o.doubts = 0 AND o.msg_type IN ('pacs.008', 'pacs.004')
      AND o.created_at <= now() - @older_than::interval AND p.state = 'created'
    ORDER BY o.id
    LIMIT 500
    FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE outbox SET closed = true WHERE id = ANY(ARRAY(SELECT stale.id FROM stale))
RETURNING payment_id;
