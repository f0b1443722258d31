-- name: OpenSession :one
-- Index: icom_sessions_pkey.
INSERT INTO icom_sessions AS s (channel, ispb, slot, is_open, term, owner)
VALUES (@channel, @ispb, @slot, true, 1, @owner)
ON CONFLICT (channel, ispb, slot) DO UPDATE
SET term = s.term + 1, is_open = true, owner = excluded.owner, opened_at = now(), updated_at = now()
RETURNING term, cursor;

-- name: CloseSession :execrows
-- Index: icom_sessions_pkey.
UPDATE icom_sessions
SET is_open = false, cursor = '', updated_at = now()
WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND is_open;

-- name: ResetCursor :execrows
-- Index: icom_sessions_pkey.
UPDATE icom_sessions
SET cursor = '', updated_at = now()
WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND is_open;

-- name: Receive :one
-- The usual batch: all new, nothing poisoned. Everything hangs on the cursor having moved: no row from "moved", nothing
-- stored. A message that is here already ends the statement with a violation of inbox_once; ReceiveUnusual takes over.
-- Messages come in the order of their keys, so that two slots with the same ones wait for each other and never both.
-- Index: icom_sessions_pkey, inbox_once, inbox_open_pkey.
WITH moved AS (
    UPDATE icom_sessions
    SET cursor = @cursor, updated_at = now()
    WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND is_open
    RETURNING nextval('inbox_batch') AS batch
), arrived AS (
    SELECT unnest(@positions::bigint[]) AS position,
           unnest(@message_ids::text[]) AS message_id,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@payloads::bytea[]) AS payload
), fresh AS (
    INSERT INTO inbox (id, source, message_id, msg_type, payload)
    SELECT moved.batch + arrived.position, @source, arrived.message_id, arrived.msg_type, arrived.payload
    FROM moved, arrived
    RETURNING id, message_id
), opened AS (
    INSERT INTO inbox_open (id, source, message_id)
    SELECT fresh.id, @source, fresh.message_id FROM fresh
)
SELECT coalesce((SELECT batch FROM moved), 0)::bigint AS batch;

-- name: ReceiveUnusual :one
-- Receive for a batch of which something was stored before or goes to the dead letters. It answers which are new.
-- Kept apart because it is rare: the check of each key and the third table cost the usual batch a fifth.
-- Index: icom_sessions_pkey, inbox_once, inbox_open_pkey, dead_letters_once.
WITH moved AS (
    UPDATE icom_sessions
    SET cursor = @cursor, updated_at = now()
    WHERE channel = @channel AND ispb = @ispb AND slot = @slot AND term = @term AND is_open
    RETURNING nextval('inbox_batch') AS batch
), arrived AS (
    SELECT unnest(@positions::bigint[]) AS position,
           unnest(@message_ids::text[]) AS message_id,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@payloads::bytea[]) AS payload
), fresh AS (
    INSERT INTO inbox (id, source, message_id, msg_type, payload)
    SELECT moved.batch + arrived.position, @source, arrived.message_id, arrived.msg_type, arrived.payload
    FROM moved, arrived
    ON CONFLICT DO NOTHING
    RETURNING id, message_id
), opened AS (
    INSERT INTO inbox_open (id, source, message_id)
    SELECT fresh.id, @source, fresh.message_id FROM fresh
), poison AS (
    SELECT unnest(@poison_ids::text[]) AS message_id,
           unnest(@poison_reasons::text[]) AS reason,
           unnest(@poison_payloads::bytea[]) AS payload
), buried AS (
    INSERT INTO dead_letters (source, message_id, msg_type, reason, payload)
    SELECT @source, poison.message_id, '', poison.reason, poison.payload
    FROM moved, poison
    ON CONFLICT DO NOTHING
)
SELECT coalesce((SELECT batch FROM moved), 0)::bigint AS batch,
       coalesce((SELECT array_agg(id) FROM fresh), '{}')::bigint[] AS ids;

-- name: BuryConflicts :many
-- In the transaction of ReceiveUnusual and after it, so that it sees what that ran into, be it of the same batch or of
-- another slot: an arrival that was not stored because its identifier was taken, by other content.
-- Index: inbox_once, dead_letters_once.
WITH arrived AS (
    SELECT unnest(@message_ids::text[]) AS message_id,
           unnest(@msg_types::text[]) AS msg_type,
           unnest(@payloads::bytea[]) AS payload
), other AS (
    SELECT arrived.message_id, arrived.msg_type, arrived.payload
    FROM arrived
    JOIN inbox AS i ON i.message_id = arrived.message_id AND i.source = @source
    WHERE i.payload <> arrived.payload
), buried AS (
    INSERT INTO dead_letters (source, message_id, msg_type, reason, payload)
    SELECT @source, other.message_id, other.msg_type, @reason, other.payload
    FROM other
    ON CONFLICT DO NOTHING
)
SELECT message_id::text FROM other;
