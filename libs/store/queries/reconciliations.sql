-- name: ReconciliationStanding :one
-- Index: reconciliations_ends, reconciliations_day, reconciliations_pkey, reconciliations_open.
SELECT now()::timestamptz AS now,
       coalesce((SELECT r.period_from FROM reconciliations AS r
           WHERE r.cause IN ('schedule', 'deploy') AND r.state <> 'failed' AND r.period_to > '-infinity'
           ORDER BY r.period_to LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS began,
       coalesce((SELECT r.period_to FROM reconciliations AS r
           WHERE r.cause IN ('schedule', 'deploy') AND r.state <> 'failed' AND r.period_to > '-infinity'
           ORDER BY r.period_to DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS head,
       coalesce((SELECT r.balance_at FROM reconciliations AS r
           WHERE r.cause IN ('schedule', 'deploy') AND r.state <> 'failed' AND r.period_to > '-infinity'
           ORDER BY r.period_to DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS balance_at,
       coalesce((SELECT r.period_from FROM reconciliations AS r
           WHERE r.cause = 'day' AND r.state <> 'failed' AND r.period_from > '-infinity'
           ORDER BY r.period_from DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS last_day,
       coalesce((SELECT r.version FROM reconciliations AS r WHERE r.id > 0 AND r.version <> '' ORDER BY r.id DESC LIMIT 1), '')::text AS version,
       coalesce((SELECT r.created_at FROM reconciliations AS r WHERE r.id > 0 AND r.cause IN ('schedule', 'deploy') AND r.state = 'failed'
           ORDER BY r.id DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS failed_at,
       coalesce((SELECT r.created_at FROM reconciliations AS r WHERE r.id > 0 AND r.cause = 'day' AND r.state = 'failed'
           ORDER BY r.id DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS failed_day_at,
       EXISTS (SELECT FROM (
           SELECT x.cause FROM reconciliations AS x WHERE x.id > 0 AND x.state NOT IN ('compared', 'failed') OFFSET 0
       ) AS r WHERE r.cause IN ('schedule', 'deploy'))::boolean AS chain_open;

-- name: StartReconciliation :one
-- A period of the chain overlaps no other, and a day is compared once: then there is no row.
-- Index: reconciliations_chain, reconciliations_day.
INSERT INTO reconciliations (cause, version, mode, period_from, period_to, term)
VALUES (@cause, @version, @mode, @period_from, @period_to, @term)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: AskReconciliation :execrows
-- Index: reconciliations_pkey.
UPDATE reconciliations
SET state = 'asked', asked = asked + 1, asked_at = now(), announced_at = NULL, fetched_at = NULL, file_hash = '', file_entries = 0,
    reason = @reason, term = @term, updated_at = now()
WHERE id = @id AND state IN ('asked', 'announced', 'importing') AND asked = @asked;

-- name: AddReconciliationQuestions :exec
-- Index: reconciliation_questions_pkey.
INSERT INTO reconciliation_questions (operation_id, reconciliation_id, subject, payment_id)
SELECT unnest(@operation_ids::bigint[]), @reconciliation_id, unnest(@subjects::text[]), nullif(unnest(@payment_ids::text[]), '');

-- name: AnswerReconciliationFile :one
-- Every question for the file of a period asks for the same, so that the first answer to any of them counts. One that was
-- answered says nothing new.
-- Index: outbox_message, reconciliation_questions_pkey, reconciliations_pkey.
WITH asked AS (
    SELECT q.operation_id, q.reconciliation_id
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT * FROM reconciliation_questions AS x WHERE x.operation_id = o.id OFFSET 0) AS q
    WHERE o.msg_id = @msg_id::text AND q.subject = 'entries'
), told AS (
    UPDATE reconciliation_questions
    SET answered_at = now(), answer = @hash::text
    WHERE operation_id = ANY(ARRAY(SELECT asked.operation_id FROM asked)) AND answered_at IS NULL
    RETURNING reconciliation_id
), announced AS (
    UPDATE reconciliations
    SET state = 'announced', announced_at = now(), file_hash = @hash, file_entries = @entries::bigint, updated_at = now()
    WHERE id = ANY(ARRAY(SELECT told.reconciliation_id FROM told)) AND state = 'asked'
)
SELECT EXISTS (SELECT FROM asked)::boolean AS asked;

-- name: AnswerReconciliationBalance :one
-- Index: outbox_message, reconciliation_questions_pkey, reconciliations_pkey.
WITH asked AS (
    SELECT q.operation_id, q.reconciliation_id
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT * FROM reconciliation_questions AS x WHERE x.operation_id = o.id OFFSET 0) AS q
    WHERE o.msg_id = @msg_id::text AND q.subject = 'balance'
), told AS (
    UPDATE reconciliation_questions
    SET answered_at = now(), answer = 'balance'
    WHERE operation_id = ANY(ARRAY(SELECT asked.operation_id FROM asked)) AND answered_at IS NULL
    RETURNING reconciliation_id
), noted AS (
    UPDATE reconciliations
    SET balance = @balance::bigint, balance_at = @balance_at::timestamptz, updated_at = now()
    WHERE id = ANY(ARRAY(SELECT told.reconciliation_id FROM told)) AND balance IS NULL
)
SELECT EXISTS (SELECT FROM asked)::boolean AS asked;

-- name: AnswerReconciliationEntry :one
-- Index: outbox_message, reconciliation_questions_pkey, reconciliation_lines_pkey.
WITH asked AS (
    SELECT q.operation_id, q.reconciliation_id, q.payment_id
    FROM outbox AS o
    CROSS JOIN LATERAL (SELECT * FROM reconciliation_questions AS x WHERE x.operation_id = o.id OFFSET 0) AS q
    WHERE o.msg_id = @msg_id::text AND q.subject = 'entry' AND q.payment_id = @payment_id::text
), told AS (
    UPDATE reconciliation_questions
    SET answered_at = now(), answer = @answer::text
    WHERE operation_id = ANY(ARRAY(SELECT asked.operation_id FROM asked)) AND answered_at IS NULL
), noted AS (
    UPDATE reconciliation_lines
    SET answer = @answer, answer_direction = @direction::text, answer_amount = @amount::bigint
    WHERE reconciliation_id = ANY(ARRAY(SELECT asked.reconciliation_id FROM asked)) AND payment_id = @payment_id
      AND finding <> 'doubled'
)
SELECT EXISTS (SELECT FROM asked)::boolean AS asked;

-- name: ReconciliationFetched :execrows
-- Index: reconciliations_pkey.
UPDATE reconciliations
SET state = 'importing', fetched_at = now(), term = @term, updated_at = now()
WHERE id = @id AND state = 'announced' AND file_hash = @file_hash::text;

-- name: FailReconciliation :execrows
-- Index: reconciliations_pkey.
UPDATE reconciliations
SET state = 'failed', reason = @reason, term = @term, updated_at = now()
WHERE id = @id AND state NOT IN ('compared', 'failed');

-- name: ReconciliationBefore :one
-- The one of the chain that ends at an instant, with its balance and its file.
-- Index: reconciliations_ends.
SELECT id, period_from, coalesce(file_id, 0)::bigint AS file_id, coalesce(balance, -1)::bigint AS balance,
       coalesce(balance_at, '0001-01-01 00:00:00Z')::timestamptz AS balance_at
FROM reconciliations
WHERE cause IN ('schedule', 'deploy') AND state <> 'failed' AND period_to = @period_to AND state = 'compared'
LIMIT 1;

-- name: HoldReconciliation :one
-- Index: reconciliations_pkey.
SELECT state, cause, period_from, period_to, file_entries FROM reconciliations WHERE id = @id FOR NO KEY UPDATE;

-- name: CloseComparison :execrows
-- Index: reconciliations_pkey, reconciliation_lines_pkey.
UPDATE reconciliations
SET state = 'compared', compared_at = clock_timestamp(), file_id = @file_id::bigint, term = @term, updated_at = now(),
    entries = @entries, reason = @reason, missing_here = found.missing_here, missing_there = found.missing_there,
    differing = found.differing, doubled = found.doubled, unresolved = found.lines
FROM (
    SELECT count(*) AS lines,
           count(*) FILTER (WHERE l.finding = 'missing_here') AS missing_here,
           count(*) FILTER (WHERE l.finding = 'missing_there') AS missing_there,
           count(*) FILTER (WHERE l.finding = 'differing') AS differing,
           count(*) FILTER (WHERE l.finding = 'doubled') AS doubled
    FROM reconciliation_lines AS l
    WHERE l.reconciliation_id = @id
) AS found
WHERE reconciliations.id = @id AND reconciliations.state = 'importing';

-- name: ExpectBalance :execrows
-- Index: reconciliations_pkey.
UPDATE reconciliations SET balance_expected = @expected::bigint, updated_at = now() WHERE id = @id;

-- name: LinesToAsk :many
-- Index: reconciliation_lines_open.
SELECT payment_id
FROM reconciliation_lines
WHERE reconciliation_id = @reconciliation_id AND resolved_at IS NULL AND finding <> 'doubled' AND answer = ''
  AND asked < @most::integer AND (asked_at IS NULL OR asked_at <= now() - @again::interval)
ORDER BY payment_id
LIMIT @at_most::integer;

-- name: LinesAsked :execrows
-- Index: reconciliation_lines_pkey.
UPDATE reconciliation_lines
SET asked = asked + 1, asked_at = now()
WHERE reconciliation_id = @reconciliation_id AND payment_id = ANY(@payment_ids::text[]) AND finding <> 'doubled';

-- name: ResolveLines :execrows
-- settled: our books came to what they have. confirmed: asked about it alone, they say what our books say. An answer is about
-- amount and side: it ends no line that differs in the participant, or in nothing but the time.
-- Index: reconciliation_lines_open, payments_pkey, reconciliation_lines_pkey.
WITH judged AS (
    SELECT l.payment_id, l.finding, CASE
        WHEN l.finding <> 'missing_there' AND p.counterparty <> l.their_counterparty THEN ''
        WHEN l.finding = 'missing_here' AND p.amount = l.their_amount AND p.direction = l.their_direction THEN 'settled'
        WHEN l.finding = 'differing' AND p.amount = l.their_amount AND p.direction = l.their_direction THEN ''
        WHEN l.answer = 'BOOK' AND p.amount = l.answer_amount AND p.direction = l.answer_direction THEN 'confirmed'
        ELSE '' END AS resolution
    FROM reconciliation_lines AS l
    CROSS JOIN LATERAL (
        SELECT x.state, x.amount, x.direction, x.counterparty FROM payments AS x WHERE x.id = l.payment_id OFFSET 0
    ) AS p
    WHERE l.reconciliation_id = @reconciliation_id AND l.resolved_at IS NULL AND l.finding <> 'doubled' AND p.state = 'settled'
)
UPDATE reconciliation_lines AS l
SET resolution = judged.resolution, resolved_at = now()
FROM judged
WHERE l.reconciliation_id = @reconciliation_id AND l.payment_id = judged.payment_id AND l.finding = judged.finding
  AND judged.resolution <> '';

-- name: CountUnresolved :execrows
-- Index: reconciliations_pkey, reconciliation_lines_open.
UPDATE reconciliations
SET unresolved = found.lines, updated_at = now()
FROM (
    SELECT count(*) AS lines FROM reconciliation_lines AS l WHERE l.reconciliation_id = @id AND l.resolved_at IS NULL
) AS found
WHERE reconciliations.id = @id AND reconciliations.unresolved <> found.lines;

-- name: GetReconciliation :one
-- Index: reconciliations_pkey.
SELECT id, cause, version, mode, period_from, period_to, state, reason, asked, file_hash, file_entries, entries,
       missing_here, missing_there, differing, doubled, unresolved, created_at, now()::timestamptz AS now,
       coalesce(file_id, 0)::bigint AS file_id,
       coalesce(asked_at, '0001-01-01 00:00:00Z')::timestamptz AS asked_at,
       coalesce(announced_at, '0001-01-01 00:00:00Z')::timestamptz AS announced_at,
       coalesce(fetched_at, '0001-01-01 00:00:00Z')::timestamptz AS fetched_at,
       coalesce(compared_at, '0001-01-01 00:00:00Z')::timestamptz AS compared_at,
       coalesce(balance, 0)::bigint AS balance,
       coalesce(balance_at, '0001-01-01 00:00:00Z')::timestamptz AS balance_at,
       coalesce(balance_expected, 0)::bigint AS balance_expected,
       (balance_expected IS NOT NULL)::boolean AS balance_judged
FROM reconciliations
WHERE id = @id;

-- name: OpenReconciliations :many
-- Index: reconciliations_open.
SELECT id FROM reconciliations WHERE id > 0 AND state NOT IN ('compared', 'failed') ORDER BY id LIMIT @at_most::integer;

-- name: UnresolvedReconciliations :many
-- Index: reconciliations_unresolved.
SELECT id FROM reconciliations WHERE id > 0 AND unresolved > 0 AND compared_at > now() - @within::interval ORDER BY id LIMIT @at_most::integer;

-- name: LastReconciliations :many
-- Newest first.
-- Index: reconciliations_pkey.
SELECT id FROM reconciliations WHERE id > 0 ORDER BY id DESC LIMIT @at_most::integer;

-- name: LastComparison :one
-- Index: reconciliations_pkey.
SELECT id, extract(epoch FROM now() - compared_at)::float8 AS age_seconds
FROM reconciliations
WHERE id > 0 AND state = 'compared'
ORDER BY id DESC
LIMIT 1;

-- name: AccountFlaws :one
-- The difference of the last balance that was judged, how many of the last comparisons were with a file that had a flaw, and
-- how long ago the first of all began. A flaw is over once all of its period was compared again, with a file that had none.
-- Index: reconciliations_pkey.
SELECT coalesce((SELECT extract(epoch FROM now() - a.created_at) FROM reconciliations AS a WHERE a.id > 0 ORDER BY a.id LIMIT 1), 0)::float8 AS age_seconds,
       coalesce((SELECT (b.balance - b.balance_expected)::bigint FROM reconciliations AS b
           WHERE b.id > 0 AND b.balance_expected IS NOT NULL ORDER BY b.id DESC LIMIT 1), 0)::bigint AS difference,
       (SELECT count(*) FROM (
           SELECT c.id, c.reason, c.period_from, c.period_to
           FROM reconciliations AS c WHERE c.id > 0 AND c.state = 'compared' ORDER BY c.id DESC LIMIT @at_most::integer
       ) AS latest
       WHERE latest.reason <> '' AND NOT EXISTS (
           SELECT FROM reconciliations AS d
           WHERE d.id > latest.id AND d.state = 'compared' AND d.reason = ''
             AND d.period_from <= latest.period_from AND d.period_to >= latest.period_to
       ))::bigint AS flawed;

-- name: UnresolvedCounts :many
-- It reads what is open alone.
-- Index: reconciliation_lines_open.
SELECT finding::text AS finding, count(*) AS count
FROM reconciliation_lines
WHERE reconciliation_id > 0 AND resolved_at IS NULL
GROUP BY finding;

-- name: ReconciliationLines :many
-- Index: reconciliation_lines_pkey.
SELECT payment_id, finding, our_state, coalesce(our_direction, '')::text AS our_direction, coalesce(our_amount, 0)::bigint AS our_amount,
       coalesce(our_counterparty, '')::text AS our_counterparty,
       coalesce(our_settled_at, '0001-01-01 00:00:00Z')::timestamptz AS our_settled_at,
       their_entries, coalesce(their_direction, '')::text AS their_direction, coalesce(their_amount, 0)::bigint AS their_amount,
       coalesce(their_counterparty, '')::text AS their_counterparty,
       coalesce(their_settled_at, '0001-01-01 00:00:00Z')::timestamptz AS their_settled_at,
       asked, answer, resolution
FROM reconciliation_lines
WHERE reconciliation_id = @reconciliation_id AND payment_id > @after_id::text
ORDER BY payment_id, finding
LIMIT @at_most::integer;

-- name: RefusedEntries :one
-- Index: imported_files_age.
SELECT reason
FROM imported_files
WHERE imported_at >= @since::timestamptz AND state = 'refused' AND (sha256 = @sha256::text OR name = @name::text)
ORDER BY imported_at DESC
LIMIT 1;

-- name: CompareEntries :execrows
-- What settled around a border may be on either side of it: ours is taken a tolerance earlier, theirs of the file before as
-- well, so that each is met once. What the file before has too is there twice, as no instant is in both. What is not met, or not
-- alike, is looked up by its key, whenever it settled here. What settled in a time that was compared before we were told is held
-- to the files of that time, unless the comparison before told of it.
-- Index: statement_entries_pkey, statement_entries_payment, payments_settled, payments_pkey, reconciliation_lines_pkey, obligations_belated, imported_files_period.
WITH theirs AS (
    SELECT e.payment_id::text AS payment_id, CASE WHEN bool_or(e.file_id = @file_id::bigint) THEN count(*) ELSE 0 END AS entries,
           min(e.amount) AS amount, max(e.amount) AS most, min(e.direction::text) AS direction, max(e.direction::text) AS last_direction,
           min(e.counterparty::text) AS counterparty, max(e.counterparty::text) AS last_counterparty,
           min(e.settled_at) AS settled_at, max(e.settled_at) AS last_settled_at
    FROM statement_entries AS e
    WHERE e.file_id = ANY(ARRAY[@file_id::bigint, @earlier_file_id::bigint]) AND (e.file_id = @file_id OR e.settled_at >= @earlier_from::timestamptz)
    GROUP BY e.payment_id
), ours AS (
    SELECT p.id::text AS id, p.direction::text AS direction, p.amount, p.counterparty::text AS counterparty, p.settled_at
    FROM payments AS p
    WHERE p.settled_at >= @our_from::timestamptz AND p.settled_at < @our_to::timestamptz
), late AS (
    SELECT o.payment_id, o.settled_at
    FROM (
        SELECT x.payment_id::text AS payment_id, x.settled_at
        FROM obligations AS x
        WHERE x.created_at - x.settled_at > interval '1 minute' AND x.created_at >= @told_from::timestamptz AND x.settled_at < @our_from
        OFFSET 0
    ) AS o
    WHERE NOT EXISTS (SELECT FROM statement_entries AS e WHERE e.file_id = @file_id AND e.payment_id = o.payment_id)
      AND NOT EXISTS (SELECT FROM reconciliation_lines AS l WHERE l.reconciliation_id = @before_id::bigint AND l.payment_id = o.payment_id)
      AND EXISTS (
          SELECT FROM imported_files AS f
          WHERE f.kind = 'entries' AND f.state = 'imported' AND f.period_to > o.settled_at AND f.period_from <= o.settled_at
      )
      AND NOT EXISTS (
          SELECT FROM imported_files AS f
          CROSS JOIN LATERAL (SELECT e.line FROM statement_entries AS e WHERE e.file_id = f.id AND e.payment_id = o.payment_id LIMIT 1) AS e
          WHERE f.kind = 'entries' AND f.state = 'imported' AND f.period_to > o.settled_at - @tolerance::interval
            AND f.period_from <= o.settled_at + @tolerance::interval
      )
), unlike AS (
    SELECT coalesce(theirs.payment_id, ours.id) AS payment_id, theirs.payment_id IS NULL AS absent, coalesce(theirs.entries, 0) AS entries,
           theirs.amount, theirs.most, theirs.direction, theirs.last_direction, theirs.counterparty, theirs.last_counterparty,
           theirs.settled_at, theirs.last_settled_at
    FROM theirs
    FULL JOIN ours ON ours.id = theirs.payment_id
    WHERE theirs.payment_id IS NULL OR theirs.entries > 1 OR theirs.entries > 0 AND (
        ours.id IS NULL
        OR (theirs.amount, theirs.most) <> (ours.amount, ours.amount)
        OR (theirs.direction, theirs.last_direction) <> (ours.direction, ours.direction)
        OR (theirs.counterparty, theirs.last_counterparty) <> (ours.counterparty, ours.counterparty)
        OR theirs.settled_at < ours.settled_at - @tolerance::interval OR theirs.last_settled_at > ours.settled_at + @tolerance::interval)
    UNION ALL
    SELECT late.payment_id, true, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM late
), judged AS (
    SELECT u.payment_id, u.entries, u.amount, u.direction, u.counterparty, u.settled_at,
           coalesce(p.state, '') AS our_state, p.direction AS our_direction, p.amount AS our_amount, p.counterparty AS our_counterparty,
           p.settled_at AS our_settled_at,
           CASE
               WHEN u.absent THEN 'missing_there'
               WHEN p.state IS DISTINCT FROM 'settled' THEN 'missing_here'
               WHEN (u.amount, u.most) <> (p.amount, p.amount) OR (u.direction, u.last_direction) <> (p.direction, p.direction)
                   OR (u.counterparty, u.last_counterparty) <> (p.counterparty, p.counterparty)
                   OR u.settled_at < p.settled_at - @tolerance OR u.last_settled_at > p.settled_at + @tolerance THEN 'differing'
               ELSE '' END AS finding
    FROM unlike AS u
    LEFT JOIN LATERAL (
        SELECT x.state::text AS state, x.direction::text AS direction, x.amount, x.counterparty::text AS counterparty, x.settled_at
        FROM payments AS x
        WHERE x.id = u.payment_id
        OFFSET 0
    ) AS p ON true
)
INSERT INTO reconciliation_lines (reconciliation_id, payment_id, finding, our_state, our_direction, our_amount, our_counterparty,
    our_settled_at, their_entries, their_direction, their_amount, their_counterparty, their_settled_at)
SELECT @reconciliation_id::bigint, j.payment_id, f.finding, j.our_state, j.our_direction, j.our_amount, j.our_counterparty, j.our_settled_at,
       j.entries, j.direction, j.amount, j.counterparty, j.settled_at
FROM judged AS j
CROSS JOIN LATERAL (
    SELECT j.finding WHERE j.finding <> ''
    UNION ALL
    SELECT 'doubled' WHERE j.entries > 1
) AS f (finding);

-- name: EntriesBetween :one
-- Index: statement_entries_pkey.
SELECT coalesce(sum(CASE e.direction WHEN 'in' THEN e.amount ELSE -e.amount END), 0)::bigint AS sum
FROM statement_entries AS e
WHERE e.file_id = ANY(@file_ids::bigint[]) AND e.settled_at > @after::timestamptz AND e.settled_at <= @until::timestamptz;
