-- name: HoldCyclesAlone :exec
-- Waits for everybody who writes obligations. See HoldCycles.
-- Index: none. It reads no table.
SELECT pg_advisory_xact_lock(hashtextextended('cabine.cycles', 0));

-- name: OpenCycle :one
-- It begins where the last one ends, whatever the calendar says now, so that no instant is without its cycle.
-- Index: cycles_ends, cycles_once, cycles_windows.
INSERT INTO cycles (cycle_date, cycle_type, opens_at, closes_at, opened_term)
SELECT @cycle_date, @cycle_type, w.opens_at, @closes_at::timestamptz, @term
FROM (
    SELECT coalesce(
        (SELECT c.closes_at FROM cycles AS c WHERE c.closes_at > '-infinity' ORDER BY c.closes_at DESC LIMIT 1),
        @opens_at::timestamptz) AS opens_at
) AS w
WHERE w.opens_at < @closes_at::timestamptz
ON CONFLICT (cycle_date, cycle_type) DO NOTHING
RETURNING id, opens_at;

-- name: SealCycle :execrows
-- Not before the next one is open, into which late obligations fall. What settled before the end and is not written yet
-- is waited for, at most patience.
-- Index: cycles_pkey, cycles_unclosed, obligations_due_next.
UPDATE cycles AS c
SET state = 'sealed', sealed_at = now()
WHERE c.id = @id AND c.state = 'open' AND c.closes_at <= now() - @grace::interval
  AND EXISTS (SELECT FROM cycles AS n WHERE n.state <> 'closed' AND n.state = 'open' AND n.closes_at > c.closes_at)
  AND (greatest(c.closes_at, c.opened_at) <= now() - @patience::interval
       OR NOT EXISTS (SELECT FROM obligations_due AS d WHERE d.next_at > '-infinity' AND d.settled_at < c.closes_at));

-- name: HoldCycle :one
-- Index: cycles_pkey.
SELECT state FROM cycles WHERE id = @id FOR NO KEY UPDATE;

-- name: NetCycle :execrows
-- Index: obligations_cycle, nettings_pkey.
INSERT INTO nettings (cycle_id, party, debits, credits, debit_count, credit_count)
SELECT o.cycle_id, o.party,
       coalesce(sum(o.amount) FILTER (WHERE o.direction = 'out'), 0)::bigint,
       coalesce(sum(o.amount) FILTER (WHERE o.direction = 'in'), 0)::bigint,
       count(*) FILTER (WHERE o.direction = 'out'), count(*) FILTER (WHERE o.direction = 'in')
FROM obligations AS o
WHERE o.cycle_id = @cycle_id
GROUP BY o.cycle_id, o.party;

-- name: CloseCycle :execrows
-- The time is that of now, not of the beginning of the transaction, which netted.
-- Index: cycles_pkey, nettings_pkey.
UPDATE cycles
SET state = 'closed', closed_at = clock_timestamp(), closed_term = @term::bigint,
    obligations = (SELECT coalesce(sum(n.debit_count + n.credit_count), 0) FROM nettings AS n WHERE n.cycle_id = @id)
WHERE id = @id AND state = 'sealed';

-- name: CompareNetting :many
-- What the obligations of a closed cycle give now, where it differs from what was written.
-- Index: obligations_cycle, nettings_pkey.
WITH again AS (
    SELECT o.party,
           coalesce(sum(o.amount) FILTER (WHERE o.direction = 'out'), 0)::bigint AS debits,
           coalesce(sum(o.amount) FILTER (WHERE o.direction = 'in'), 0)::bigint AS credits,
           count(*) FILTER (WHERE o.direction = 'out') AS debit_count,
           count(*) FILTER (WHERE o.direction = 'in') AS credit_count
    FROM obligations AS o
    WHERE o.cycle_id = @cycle_id
    GROUP BY o.party
), written AS (
    SELECT n.party, n.debits, n.credits, n.debit_count, n.credit_count FROM nettings AS n WHERE n.cycle_id = @cycle_id
)
SELECT coalesce(written.party, again.party)::text AS party,
       coalesce(written.debits, 0)::bigint AS written_debits, coalesce(written.credits, 0)::bigint AS written_credits,
       coalesce(written.debit_count, 0)::bigint AS written_debit_count,
       coalesce(written.credit_count, 0)::bigint AS written_credit_count,
       coalesce(again.debits, 0)::bigint AS debits, coalesce(again.credits, 0)::bigint AS credits,
       coalesce(again.debit_count, 0)::bigint AS debit_count, coalesce(again.credit_count, 0)::bigint AS credit_count
FROM written
FULL JOIN again ON again.party = written.party
WHERE (written.debits, written.credits, written.debit_count, written.credit_count)
      IS DISTINCT FROM (again.debits, again.credits, again.debit_count, again.credit_count)
ORDER BY 1;

-- name: Nettings :many
-- Index: nettings_pkey.
SELECT party, debits, credits, debit_count, credit_count FROM nettings WHERE cycle_id = @cycle_id ORDER BY party;

-- name: UnclosedCycles :many
-- Index: cycles_unclosed.
SELECT id, cycle_date, cycle_type, opens_at, closes_at, state, opened_at,
       coalesce(sealed_at, '0001-01-01 00:00:00Z')::timestamptz AS sealed_at,
       coalesce(closed_at, '0001-01-01 00:00:00Z')::timestamptz AS closed_at,
       coalesce(obligations, 0)::bigint AS obligations
FROM cycles
WHERE state <> 'closed' AND closes_at > '-infinity'
ORDER BY closes_at;

-- name: LastCycle :one
-- Index: cycles_ends.
SELECT now()::timestamptz AS now,
       coalesce((SELECT c.closes_at FROM cycles AS c WHERE c.closes_at > '-infinity' ORDER BY c.closes_at DESC LIMIT 1),
           '0001-01-01 00:00:00Z')::timestamptz AS ends_at;

-- name: GetCycle :one
-- Index: cycles_pkey.
SELECT id, cycle_date, cycle_type, opens_at, closes_at, state, opened_at,
       coalesce(sealed_at, '0001-01-01 00:00:00Z')::timestamptz AS sealed_at,
       coalesce(closed_at, '0001-01-01 00:00:00Z')::timestamptz AS closed_at,
       coalesce(obligations, 0)::bigint AS obligations
FROM cycles
WHERE id = @id;

-- name: CyclesOf :many
-- Index: cycles_once.
SELECT id, cycle_date, cycle_type, opens_at, closes_at, state, opened_at,
       coalesce(sealed_at, '0001-01-01 00:00:00Z')::timestamptz AS sealed_at,
       coalesce(closed_at, '0001-01-01 00:00:00Z')::timestamptz AS closed_at,
       coalesce(obligations, 0)::bigint AS obligations
FROM cycles
WHERE cycle_date >= @from_date AND cycle_date <= @to_date
ORDER BY cycle_date, closes_at;

-- name: LimitStatement :one
-- For a statement that may take longer than others, until the end of the transaction. The server looks whether the client
-- still lives, because locks wait for it.
-- Index: none. It reads no table.
SELECT set_config('statement_timeout', @within::text, true)::text AS within,
       set_config('client_connection_check_interval', '500ms', true)::text AS looks;

-- name: NewestTerm :one
-- Index: leader_terms_pkey.
SELECT term FROM leader_terms WHERE name = @name;
