-- name: MarkPublished :execrows
-- Index: inbox_pkey.
UPDATE inbox
SET state = 'published', published_at = now()
WHERE id = ANY(@ids::bigint[]) AND state = 'received';

-- name: Republished :execrows
-- Index: inbox_pkey.
UPDATE inbox
SET published_at = now(), attempts = attempts + 1
WHERE id = ANY(@ids::bigint[]) AND state = 'published';

-- name: MarkDone :execrows
-- Index: inbox_once.
UPDATE inbox
SET state = 'done', closed_at = now()
WHERE message_id = ANY(@message_ids::text[]) AND source = @source AND state IN ('received', 'published');

-- name: Unpublished :many
-- Index: inbox_open.
SELECT id, source, message_id, msg_type, payload, attempts, received_at
FROM inbox
WHERE closed_at IS NULL AND state = 'received' AND received_at <= now() - @older_than::interval
ORDER BY id
LIMIT @at_most::integer;

-- name: Stuck :many
-- Index: inbox_open.
SELECT id, source, message_id, msg_type, payload, attempts, received_at
FROM inbox
WHERE closed_at IS NULL AND state = 'published' AND published_at <= now() - @older_than::interval
ORDER BY id
LIMIT @at_most::integer;

-- name: Bury :execrows
-- A message may be buried again after it was brought back: the newest reason stands.
-- Index: inbox_pkey, dead_letters_once.
WITH dead AS (
    UPDATE inbox AS m
    SET state = 'dead', closed_at = now()
    WHERE m.id = @id AND m.state IN ('received', 'published')
    RETURNING m.source, m.message_id, m.msg_type, m.payload
)
INSERT INTO dead_letters (source, message_id, msg_type, reason, payload)
SELECT dead.source, dead.message_id, dead.msg_type, @reason, dead.payload FROM dead
ON CONFLICT (message_id, source) WHERE message_id <> '' DO UPDATE
SET reason = excluded.reason, buried_at = now(), msg_type = excluded.msg_type, payload = excluded.payload;

-- name: InboxState :one
-- Index: inbox_pkey.
SELECT state FROM inbox WHERE id = @id;

-- name: Backlog :one
-- Index: inbox_open.
SELECT count(*) FILTER (WHERE state = 'received')::bigint AS received,
       count(*) FILTER (WHERE state = 'published')::bigint AS published,
       coalesce(extract(epoch FROM now() - min(received_at)), 0)::float8 AS lag_seconds
FROM inbox
WHERE closed_at IS NULL;

-- name: Closed :one
-- Index: none. It reads the whole table, which is why Backlog exists.
SELECT count(*) FILTER (WHERE state = 'done')::bigint AS done,
       (SELECT count(*) FROM dead_letters)::bigint AS dead
FROM inbox;
