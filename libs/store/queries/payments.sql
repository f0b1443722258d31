-- name: InsertPayment :execrows
-- What settles has an obligation due.
-- Index: payments_pkey, payments_client, obligations_due_pkey.
WITH fresh AS (
    INSERT INTO payments (id, kind, direction, state, amount, channel, counterparty, original_id, client_id,
        reason, detail, document, accepted_at, settled_at)
    VALUES (@id, @kind, @direction, @state, @amount, @channel, @counterparty,
        nullif(@original_id::text, ''), nullif(@client_id::text, ''),
        @reason, @detail, @document, @accepted_at, nullif(@settled_at::timestamptz, '0001-01-01 00:00:00Z'))
    ON CONFLICT DO NOTHING
    RETURNING id, state, reason, detail, settled_at
), due AS (
    INSERT INTO obligations_due (payment_id, settled_at)
    SELECT fresh.id, fresh.settled_at FROM fresh WHERE fresh.state = 'settled'
    ON CONFLICT DO NOTHING
)
INSERT INTO payment_events (payment_id, was, became, who, reason, detail)
SELECT fresh.id, '', fresh.state, @who, fresh.reason, fresh.detail FROM fresh;

-- name: HoldOriginal :one
-- Returns of one payment wait for each other here, so that their sum is looked at by one at a time.
-- Index: payments_pkey.
SELECT kind, direction, state, amount, returned FROM payments WHERE id = @id::text FOR NO KEY UPDATE;

-- name: ReturnExists :one
-- Index: payments_pkey, payments_client.
SELECT EXISTS (
    SELECT FROM payments
    WHERE id = @id::text OR (original_id = @original_id::text AND client_id = nullif(@client_id::text, ''))
);

-- name: AddReturned :execrows
-- Index: payments_pkey.
UPDATE payments SET returned = returned + @amount::bigint WHERE id = @id::text;

-- name: MovePayments :many
-- Compare-and-set of many. What is to change is locked in the order of its keys, the originals of rejected returns among
-- it, and is then looked at as it stands, not as it stood when the statement began. A payment that has returns is
-- settled and moves no more, so no row is changed twice. What settles has an obligation due from the same instant.
-- Index: payments_pkey, obligations_due_pkey.
WITH moves AS (
    SELECT unnest(@ids::text[]) AS id,
           unnest(@became::text[]) AS became,
           unnest(@who::text[]) AS who,
           unnest(@reasons::text[]) AS reason,
           unnest(@details::text[]) AS detail,
           unnest(@settled_at::timestamptz[]) AS settled_at
), wanted AS (
    SELECT moves.id FROM moves
    UNION
    SELECT p.original_id
    FROM moves
    CROSS JOIN LATERAL (SELECT original_id FROM payments WHERE payments.id = moves.id OFFSET 0) AS p
    WHERE moves.became = 'rejected' AND p.original_id IS NOT NULL
), held AS (
    SELECT p.id, p.kind, p.direction, p.state, p.amount, p.original_id
    FROM payments AS p
    WHERE p.id = ANY(ARRAY(SELECT wanted.id FROM wanted))
    ORDER BY p.id
    FOR NO KEY UPDATE
), moving AS (
    SELECT held.id, held.kind, held.direction, held.state AS was, held.amount, held.original_id,
           moves.became, moves.who, moves.reason, moves.detail, moves.settled_at,
           (held.state || '>' || moves.became) = ANY(@legal::text[]) AS may
    FROM moves
    JOIN held ON held.id = moves.id
), moved AS (
    UPDATE payments
    SET state = moving.became, reason = moving.reason, detail = moving.detail, updated_at = now(),
        settled_at = CASE WHEN moving.became = 'settled'
            THEN coalesce(nullif(moving.settled_at, '0001-01-01 00:00:00Z'), now()) END
    FROM moving
    WHERE payments.id = moving.id AND payments.id = ANY(@ids::text[]) AND moving.may
    RETURNING payments.id, payments.state, payments.settled_at
), due AS (
    INSERT INTO obligations_due (payment_id, settled_at)
    SELECT moved.id, moved.settled_at FROM moved WHERE moved.state = 'settled'
    ON CONFLICT DO NOTHING
), freed AS (
    SELECT moving.original_id, sum(moving.amount)::bigint AS amount
    FROM moving
    WHERE moving.may AND moving.became = 'rejected' AND moving.original_id IS NOT NULL
    GROUP BY moving.original_id
), given AS (
    UPDATE payments
    SET returned = payments.returned - freed.amount
    FROM freed
    WHERE payments.id = freed.original_id AND payments.id = ANY(ARRAY(SELECT freed.original_id FROM freed))
), explained AS (
    INSERT INTO payment_events (payment_id, was, became, who, reason, detail)
    SELECT moving.id, moving.was, moving.became, moving.who, moving.reason, moving.detail
    FROM moving
    WHERE moving.may
)
SELECT moving.id::text AS id, moving.kind::text AS kind, moving.direction::text AS direction,
       moving.was::text AS was, moving.amount::bigint AS amount,
       coalesce(moving.original_id, '')::text AS original_id, moving.may::boolean AS may
FROM moving;

-- name: NotePayment :execrows
-- Index: payments_pkey.
INSERT INTO payment_events (payment_id, was, became, who, reason, detail)
SELECT p.id, p.state, p.state, @who, @reason, @detail FROM payments AS p WHERE p.id = @id::text;

-- name: GetPayment :one
-- Index: payments_pkey.
SELECT id, kind, direction, state, amount, returned, channel, counterparty,
       coalesce(original_id, '')::text AS original_id, coalesce(client_id, '')::text AS client_id, reason, detail, document,
       accepted_at, created_at, updated_at, coalesce(settled_at, '0001-01-01 00:00:00Z')::timestamptz AS settled_at
FROM payments
WHERE id = @id::text;

-- name: ReturnsOf :many
-- Index: payments_client.
SELECT id, kind, direction, state, amount, returned, channel, counterparty,
       coalesce(original_id, '')::text AS original_id, coalesce(client_id, '')::text AS client_id, reason, detail, document,
       accepted_at, created_at, updated_at, coalesce(settled_at, '0001-01-01 00:00:00Z')::timestamptz AS settled_at
FROM payments
WHERE original_id = @original_id::text AND (@client_id::text = '' OR client_id = @client_id)
ORDER BY created_at, id
LIMIT @at_most::integer;

-- name: ListPayments :many
-- Index: payments_listed.
SELECT id, kind, direction, state, amount, returned, channel, counterparty,
       coalesce(original_id, '')::text AS original_id, coalesce(client_id, '')::text AS client_id, reason, detail, document,
       accepted_at, created_at, updated_at, coalesce(settled_at, '0001-01-01 00:00:00Z')::timestamptz AS settled_at
FROM payments
WHERE (created_at, id) > (@after_at::timestamptz, @after_id::text)
  AND created_at >= @from_at::timestamptz AND created_at < @to_at::timestamptz
  AND (@direction::text = '' OR direction = @direction)
  AND (@state::text = '' OR state = @state)
  AND (@kind::text = '' OR kind = @kind)
ORDER BY created_at, id
LIMIT @at_most::integer;

-- name: OpenCounts :many
-- Index: payments_open.
SELECT state::text AS state, count(*) AS count, extract(epoch FROM now() - min(updated_at))::float8 AS oldest_seconds
FROM payments
WHERE NOT final
GROUP BY state;

-- name: Books :many
-- Index: none. It reads the whole table.
SELECT kind::text AS kind, direction::text AS direction, count(*) AS count, sum(amount)::bigint AS amount
FROM payments
WHERE state = 'settled'
GROUP BY kind, direction
ORDER BY kind, direction;

-- name: PaymentEvents :many
-- Index: payment_events_pkey.
SELECT at, was, became, who, reason, detail FROM payment_events WHERE payment_id = @payment_id ORDER BY id;
