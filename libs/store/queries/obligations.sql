-- name: HoldCycles :exec
-- Held by everybody who writes obligations, beside each other, and waited for by who seals a cycle. The lock manager lets
-- nobody overtake who waits, which locks of rows would. The next statement sees what was committed before.
-- Index: none. It reads no table.
SELECT pg_advisory_xact_lock_shared(hashtextextended('cabine.cycles', 0));

-- name: BookObligations :many
-- The cycle is the first open one that ends after the settlement. It is late if its own cycle, by time, was another one.
-- Our client's branch, in a return that of the original, says whether it is an indirect participant's. In the order of
-- the keys, so that two who write the same wait for each other in one direction.
-- Index: payments_pkey, cycles_unclosed, cycles_windows, obligations_pkey, obligations_due_pkey.
WITH settled AS (
    SELECT p.id, p.kind, p.direction, p.amount, p.counterparty, p.settled_at, p.original_id
    FROM payments AS p
    WHERE p.id = ANY(@ids::text[]) AND p.state = 'settled'
), ours AS (
    SELECT settled.id, o.branch
    FROM settled
    CROSS JOIN LATERAL (
        SELECT CASE p.direction
            WHEN 'out' THEN p.document -> 'debtor_account' ->> 'branch'
            ELSE p.document -> 'creditor_account' ->> 'branch' END AS branch
        FROM payments AS p
        WHERE p.id = coalesce(settled.original_id, settled.id)
        OFFSET 0
    ) AS o
    WHERE cardinality(@branches::text[]) > 0
), parties AS (
    SELECT unnest(@branches::text[]) AS branch, unnest(@parties::text[]) AS party
), placed AS (
    SELECT s.id, s.kind, s.direction, s.amount, coalesce(parties.party, s.counterparty) AS party, s.settled_at,
           (SELECT c.id FROM cycles AS c WHERE c.state <> 'closed' AND c.state = 'open' AND c.closes_at > s.settled_at
               ORDER BY c.closes_at LIMIT 1) AS cycle_id,
           (SELECT c.id FROM cycles AS c WHERE tstzrange(c.opens_at, c.closes_at) @> s.settled_at) AS own_id
    FROM settled AS s
    LEFT JOIN ours ON ours.id = s.id
    LEFT JOIN parties ON parties.branch = lpad(ours.branch, 4, '0')
), booked AS (
    INSERT INTO obligations (payment_id, cycle_id, late_from, kind, direction, amount, party, settled_at)
    SELECT placed.id, placed.cycle_id, nullif(placed.own_id, placed.cycle_id), placed.kind, placed.direction, placed.amount,
           placed.party, placed.settled_at
    FROM placed
    WHERE placed.cycle_id IS NOT NULL
    ORDER BY placed.id
    ON CONFLICT DO NOTHING
    RETURNING payment_id, late_from
), done AS (
    DELETE FROM obligations_due
    WHERE payment_id = ANY(@ids::text[])
      AND payment_id = ANY(ARRAY(SELECT placed.id::text FROM placed WHERE placed.cycle_id IS NOT NULL))
)
SELECT placed.id::text AS id, (placed.cycle_id IS NOT NULL)::boolean AS placed,
       (booked.payment_id IS NOT NULL)::boolean AS fresh, (booked.late_from IS NOT NULL)::boolean AS late
FROM placed
LEFT JOIN booked ON booked.payment_id = placed.id;

-- name: DueObligations :many
-- Index: obligations_due_next.
SELECT payment_id, settled_at, attempts
FROM obligations_due
WHERE next_at <= now()
ORDER BY next_at
LIMIT @at_most::integer;

-- name: ObligationsAnnounced :execrows
-- The wait doubles with each attempt. What was written or announced meanwhile is not there, or not as it was seen.
-- Index: obligations_due_pkey.
WITH seen AS (
    SELECT unnest(@ids::text[]) AS id,
           unnest(@attempts::integer[]) AS attempts
), held AS (
    SELECT d.payment_id
    FROM seen
    JOIN obligations_due AS d ON d.payment_id = seen.id
    WHERE d.payment_id = ANY(@ids::text[]) AND d.attempts = seen.attempts
    ORDER BY d.payment_id
    FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE obligations_due
SET next_at = now() + least(power(2, least(attempts, 20)) * @first::interval, @most::interval), attempts = attempts + 1
WHERE payment_id = ANY(ARRAY(SELECT held.payment_id FROM held));

-- name: ObligationsBacklog :one
-- It reads all that is due, which is few: the condition keeps to the index.
-- Index: obligations_due_next.
SELECT count(*) AS due, coalesce(max(attempts), 0)::bigint AS attempts,
       coalesce(extract(epoch FROM now() - min(settled_at)), 0)::float8 AS lag_seconds
FROM obligations_due
WHERE next_at > '-infinity';

-- name: GetObligation :one
-- Index: obligations_pkey.
SELECT payment_id, cycle_id, coalesce(late_from, 0)::bigint AS late_from, kind, direction, amount, party, settled_at, created_at
FROM obligations
WHERE payment_id = @id::text;

-- name: ObligationsMissing :one
-- Index: none. It reads the whole table.
SELECT count(*) FILTER (WHERE o.payment_id IS NULL AND d.payment_id IS NULL) AS lost,
       count(*) FILTER (WHERE o.payment_id IS NULL AND d.payment_id IS NOT NULL) AS due
FROM payments AS p
LEFT JOIN obligations AS o ON o.payment_id = p.id
LEFT JOIN obligations_due AS d ON d.payment_id = p.id
WHERE p.state = 'settled';
