-- name: OpenSession :one
-- Index: icom_sessions_pkey.
INSERT INTO icom_sessions AS s (channel, ispb, slot, state, term, owner)
VALUES (@channel, @ispb, @slot, 'open', 1, @owner)
ON CONFLICT (channel, ispb, slot) DO UPDATE
SET term = s.term + 1, state = 'open', owner = excluded.owner, opened_at = now(), updated_at = now()
RETURNING term, cursor;

-- name: CloseSession :execrows
-- Index: icom_sessions_pkey.
UPDATE icom_sessions
SET state = 'closed', cursor = '', updated_at = now()
WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND state = 'open';

-- name: ResetCursor :execrows
-- Index: icom_sessions_pkey.
UPDATE icom_sessions
SET cursor = '', updated_at = now()
WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND state = 'open';

-- name: Receive :one
-- Everything hangs on the cursor having moved: no row from "moved", nothing stored.
-- Index: icom_sessions_pkey, inbox_once.
WITH moved AS (
    UPDATE icom_sessions
    SET cursor = @cursor, updated_at = now()
    WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND state = 'open'
    RETURNING 1
), arrived AS (
    SELECT unnest(@message_ids::text[]) AS message_id,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@payloads::bytea[]) AS payload
), fresh AS (
    INSERT INTO inbox (source, message_id, msg_type, payload)
    SELECT @source, message_id, msg_type, payload FROM arrived
    WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT DO NOTHING
    RETURNING id, message_id
), opened AS (
    INSERT INTO inbox_open (id, source, message_id)
    SELECT id, @source, message_id FROM fresh
)
SELECT (SELECT count(*) FROM moved)::bigint AS moved,
       coalesce(array_agg(id), '{}')::bigint[] AS ids,
       coalesce(array_agg(message_id), '{}')::text[] AS message_ids
FROM fresh;

-- name: ReceiveWithPoison :one
-- Receive for a batch of which something goes to the dead letters. Kept apart because it is
-- rare, and because every table a statement names costs the common case some planning and locks.
-- Index: icom_sessions_pkey, inbox_once, dead_letters_once.
WITH moved AS (
    UPDATE icom_sessions
    SET cursor = @cursor, updated_at = now()
    WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND state = 'open'
    RETURNING 1
), arrived AS (
    SELECT unnest(@message_ids::text[]) AS message_id,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@payloads::bytea[]) AS payload
), fresh AS (
    INSERT INTO inbox (source, message_id, msg_type, payload)
    SELECT @source, message_id, msg_type, payload FROM arrived
    WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT DO NOTHING
    RETURNING id, message_id
), opened AS (
    INSERT INTO inbox_open (id, source, message_id)
    SELECT id, @source, message_id FROM fresh
), poison AS (
    SELECT unnest(@poison_ids::text[]) AS message_id,
           unnest(@poison_reasons::text[]) AS reason,
           unnest(@poison_payloads::bytea[]) AS payload
), buried AS (
    INSERT INTO dead_letters (source, message_id, msg_type, reason, payload)
    SELECT @source, message_id, '', reason, payload FROM poison
    WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM moved)::bigint AS moved,
       coalesce(array_agg(id), '{}')::bigint[] AS ids,
       coalesce(array_agg(message_id), '{}')::text[] AS message_ids
FROM fresh;
