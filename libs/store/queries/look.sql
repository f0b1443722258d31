-- name: Look :one
-- Without a payload it is not open, or not there.
-- Index: inbox_once, inbox_open_pkey.
SELECT now()::timestamptz AS at,
       (SELECT CASE WHEN (SELECT o.id FROM inbox_open AS o WHERE o.id = i.id) IS NOT NULL THEN i.payload END
        FROM inbox AS i
        WHERE i.message_id = @message_id::text AND i.source = @source::text)::bytea AS payload;

-- name: Failed :one
-- Index: inbox_once, inbox_open_pkey.
UPDATE inbox_open
SET failures = failures + 1
WHERE id = (SELECT i.id FROM inbox AS i WHERE i.message_id = @message_id::text AND i.source = @source::text)
RETURNING failures::integer AS failures;

-- name: DeadLetter :execrows
-- As Bury, for a message that its consumer closes itself.
-- Index: inbox_once, dead_letters_once.
INSERT INTO dead_letters (inbox_id, source, message_id, msg_type, reason, payload)
SELECT i.id, i.source, i.message_id, i.msg_type, @reason::text, i.payload
FROM inbox AS i
WHERE i.message_id = @message_id::text AND i.source = @source::text
ON CONFLICT (message_id, source, sha256(payload)) WHERE message_id <> '' DO UPDATE
SET inbox_id = excluded.inbox_id, buried_at = now(), msg_type = excluded.msg_type, reason = excluded.reason;

-- name: OrderTouched :one
-- Each attempt is counted in its message before its bytes go out, and its end is recorded there.
-- Index: payments_pkey, outbox_once, outbound_messages_pkey.
SELECT greatest(p.updated_at, (
    SELECT max(m.updated_at)
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT updated_at FROM outbound_messages WHERE outbound_messages.msg_id = o.msg_id OFFSET 0) AS m
    WHERE o.payment_id = @id::text AND o.msg_type IN ('pacs.008', 'pacs.004')
))::timestamptz AS at
FROM payments AS p
WHERE p.id = @id::text;

-- name: EnquiriesDue :many
-- The pause doubles with each enquiry. Two replicas do not take the same payments at once; an enquiry too many does no harm.
-- Index: payments_open, payment_events_pkey.
SELECT p.id::text AS id, p.state::text AS state, p.channel::text AS channel, asked.times::integer AS times
FROM payments AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS times, max(e.at) AS last
    FROM payment_events AS e
    WHERE e.payment_id = p.id AND e.reason = @reason::text
) AS asked
WHERE NOT p.final AND p.state <> 'created' AND p.updated_at <= now() - @older_than::interval
  AND (asked.last IS NULL OR asked.last <= now() - least(power(2, least(asked.times - 1, 20)) * @first::interval, @most::interval))
ORDER BY p.created_at
LIMIT @at_most::integer
FOR NO KEY UPDATE OF p SKIP LOCKED;
