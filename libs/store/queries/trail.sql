-- name: DeadLetters :many
-- Index: dead_letters_pkey.
SELECT id, buried_at, source, message_id, msg_type, reason
FROM dead_letters
WHERE id > @after::bigint
ORDER BY id
LIMIT @at_most::integer;

-- name: Carriers :many
-- Before its group was taken apart an operation was in another message; the events know it.
-- Index: outbox_once, outbound_messages_pkey.
SELECT o.id, o.msg_type, o.closed, o.alone, o.doubts, o.attempts AS published, o.created_at,
       coalesce(m.msg_id, '')::text AS msg_id, coalesce(m.state, '')::text AS state, coalesce(m.attempts, 0)::integer AS attempts,
       coalesce(m.reason, '')::text AS reason, coalesce(m.updated_at, '0001-01-01 00:00:00Z')::timestamptz AS updated_at
FROM outbox AS o
LEFT JOIN outbound_messages AS m ON m.msg_id = o.msg_id
WHERE o.payment_id = @payment_id AND o.msg_type IN ('pacs.008', 'pacs.004', 'pacs.002')
ORDER BY o.id;

-- name: EndedTwice :many
-- Index: none. It reads the whole table.
SELECT payment_id::text AS payment_id
FROM payment_events
WHERE became IN ('settled', 'rejected') AND was <> became
GROUP BY payment_id
HAVING count(*) > 1
ORDER BY payment_id;
