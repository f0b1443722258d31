-- name: MarkPublished :execrows
-- Index: inbox_open_pkey.
UPDATE inbox_open
SET published_at = now()
WHERE id = ANY(@ids::bigint[]) AND published_at IS NULL;

-- name: Republished :execrows
-- Two replicas that swept the same messages count them once: the second finds other attempts than it saw.
-- It locks in the order in which the other marks do.
-- Index: inbox_open_pkey.
WITH seen AS (
    SELECT unnest(@ids::bigint[]) AS id,
           unnest(@attempts::integer[]) AS attempts
), again AS (
    SELECT o.id
    FROM seen
    JOIN inbox_open AS o ON o.id = seen.id
    WHERE o.published_at IS NOT NULL AND o.attempts = seen.attempts
    ORDER BY o.id
    FOR UPDATE OF o
)
UPDATE inbox_open
SET published_at = now(), attempts = inbox_open.attempts + 1
FROM again
WHERE inbox_open.id = again.id;

-- name: MarkDone :execrows
-- It locks in the order in which the marks by id do.
-- Index: inbox_once, inbox_open_pkey.
WITH closing AS (
    SELECT o.id
    FROM inbox AS i
    JOIN inbox_open AS o ON o.id = i.id
    WHERE i.message_id = ANY(@message_ids::text[]) AND i.source = @source
    ORDER BY o.id
    FOR UPDATE OF o
)
DELETE FROM inbox_open USING closing WHERE inbox_open.id = closing.id;

-- name: Unpublished :many
-- OFFSET keeps the lookup of the payload a lookup, whatever the planner believes about the sizes.
-- Index: inbox_open_pkey, inbox_once.
SELECT o.id, i.source, i.message_id, i.msg_type, i.payload, o.attempts, o.received_at
FROM inbox_open AS o
CROSS JOIN LATERAL (
    SELECT * FROM inbox AS m WHERE m.message_id = o.message_id AND m.source = o.source OFFSET 0
) AS i
WHERE o.published_at IS NULL AND o.received_at <= now() - @older_than::interval
ORDER BY o.id
LIMIT @at_most::integer;

-- name: Stuck :many
-- The wait doubles with each attempt: a consumer that is away for a day is not handed everything a hundred times over.
-- OFFSET as in Unpublished.
-- Index: inbox_open_pkey, inbox_once.
SELECT o.id, i.source, i.message_id, i.msg_type, i.payload, o.attempts, o.received_at
FROM inbox_open AS o
CROSS JOIN LATERAL (
    SELECT * FROM inbox AS m WHERE m.message_id = o.message_id AND m.source = o.source OFFSET 0
) AS i
WHERE o.published_at <= now() - least(power(2, least(o.attempts, 20)) * @first::interval, @most::interval)
ORDER BY o.id
LIMIT @at_most::integer;

-- name: Bury :execrows
-- A message that was poison once and was taken in later has a dead letter already, if its content is the same: the
-- newest reason stands.
-- Index: inbox_open_pkey, inbox_once, dead_letters_once.
WITH closed AS (
    DELETE FROM inbox_open AS o
    WHERE o.id = @id
    RETURNING o.id, o.source, o.message_id
)
INSERT INTO dead_letters (inbox_id, source, message_id, msg_type, reason, payload)
SELECT closed.id, i.source, i.message_id, i.msg_type, @reason, i.payload
FROM closed
JOIN inbox AS i ON i.message_id = closed.message_id AND i.source = closed.source
ON CONFLICT (message_id, source, sha256(payload)) WHERE message_id <> '' DO UPDATE
SET inbox_id = excluded.inbox_id, buried_at = now(), msg_type = excluded.msg_type, reason = excluded.reason;

-- name: IsBuried :one
-- Index: dead_letters_inbox.
SELECT EXISTS (SELECT FROM dead_letters WHERE inbox_id = @id::bigint);

-- name: Backlog :one
-- Index: none. inbox_open has only what is open.
SELECT count(*) FILTER (WHERE published_at IS NULL)::bigint AS received,
       count(*) FILTER (WHERE published_at IS NOT NULL)::bigint AS published,
       coalesce(max(attempts), 0)::bigint AS attempts,
       coalesce(extract(epoch FROM now() - min(received_at)), 0)::float8 AS lag_seconds
FROM inbox_open;

-- name: Closed :one
-- Index: none. It reads an index of the whole inbox, which is why Backlog exists.
SELECT ((SELECT count(*) FROM inbox) - (SELECT count(*) FROM inbox_open) - count(inbox_id))::bigint AS done,
       count(*)::bigint AS dead
FROM dead_letters;
