-- name: SeenObjects :many
-- Index: imported_objects_pkey.
SELECT name, version FROM imported_objects WHERE name = ANY(@names::text[]);

-- name: SeeObject :exec
-- Index: imported_objects_pkey.
INSERT INTO imported_objects AS o (name, version, file_id)
VALUES (@name, @version, @file_id)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, file_id = excluded.file_id, seen_at = now()
WHERE (o.version, o.file_id) IS DISTINCT FROM (excluded.version, excluded.file_id);

-- name: NextFile :one
-- Its rows carry the number before the file itself is written, which is last. See Files.
-- Index: none. It reads no table.
SELECT nextval(pg_get_serial_sequence('imported_files', 'id'))::bigint AS id;

-- name: AddFile :one
-- No row: the same content was imported before.
-- Index: imported_files_pkey, imported_files_once.
INSERT INTO imported_files (
    id, state, kind, sha256, name, size, ispb, period_from, period_to, cycle_id, records, debits, credits, rows_refused, reason, term
)
VALUES (
    @id, @state, nullif(@kind::text, ''), nullif(@sha256::text, ''), @name, @size, nullif(@ispb::text, ''),
    nullif(@period_from::timestamptz, '0001-01-01 00:00:00Z'), nullif(@period_to::timestamptz, '0001-01-01 00:00:00Z'),
    nullif(@cycle_id::bigint, 0), @records, @debits, @credits, @rows_refused, @reason, @term
)
ON CONFLICT (kind, sha256) WHERE state = 'imported' DO NOTHING
RETURNING imported_at;

-- name: AddRefusedRows :exec
-- Index: imported_rows_refused_pkey.
INSERT INTO imported_rows_refused (file_id, line, reason)
SELECT @file_id, unnest(@lines::bigint[]), unnest(@reasons::text[]);

-- name: ImportedFile :one
-- Index: imported_files_once.
SELECT id, state, coalesce(kind, '')::text AS kind, coalesce(sha256, '')::text AS sha256, name, size, coalesce(ispb, '')::text AS ispb,
       coalesce(period_from, '0001-01-01 00:00:00Z')::timestamptz AS period_from,
       coalesce(period_to, '0001-01-01 00:00:00Z')::timestamptz AS period_to,
       coalesce(cycle_id, 0)::bigint AS cycle_id, records, debits, credits, rows_refused, reason, term, imported_at
FROM imported_files
WHERE kind = @kind::text AND sha256 = @sha256::text AND state = 'imported';

-- name: LatestFiles :many
-- Index: imported_files_age.
SELECT id, state, coalesce(kind, '')::text AS kind, coalesce(sha256, '')::text AS sha256, name, size, coalesce(ispb, '')::text AS ispb,
       coalesce(period_from, '0001-01-01 00:00:00Z')::timestamptz AS period_from,
       coalesce(period_to, '0001-01-01 00:00:00Z')::timestamptz AS period_to,
       coalesce(cycle_id, 0)::bigint AS cycle_id, records, debits, credits, rows_refused, reason, term, imported_at
FROM imported_files
WHERE imported_at > '-infinity'
ORDER BY imported_at DESC
LIMIT @most;

-- name: RefusedRows :many
-- Index: imported_rows_refused_pkey.
SELECT line, reason FROM imported_rows_refused WHERE file_id = @file_id ORDER BY line;

-- name: FileAges :one
-- Index: imported_files_period.
SELECT now()::timestamptz AS now,
       coalesce((SELECT f.imported_at FROM imported_files AS f WHERE f.kind = 'entries' AND f.state = 'imported'
           ORDER BY f.kind DESC, f.period_to DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS imported_at,
       coalesce((SELECT f.period_to FROM imported_files AS f WHERE f.kind = 'entries' AND f.state = 'imported'
           ORDER BY f.kind DESC, f.period_to DESC LIMIT 1), '0001-01-01 00:00:00Z')::timestamptz AS period_to;

-- name: NamedCycle :one
-- Index: cycles_once.
SELECT id, state FROM cycles WHERE cycle_date = @cycle_date AND cycle_type = @cycle_type;

-- name: UnconfirmedLines :many
-- What of the lines of some parties may be confirmed, and by which file it is already.
-- Index: nettings_pkey, netting_confirmations_pkey.
SELECT n.party, n.net, coalesce(c.file_id, 0)::bigint AS file_id
FROM nettings AS n
LEFT JOIN netting_confirmations AS c ON c.cycle_id = n.cycle_id AND c.party = n.party
WHERE n.cycle_id = @cycle_id AND n.party = ANY(@parties::text[]);

-- name: ConfirmLines :many
-- In the order of the key, so that two who confirm the same wait for each other in one direction.
-- Index: netting_confirmations_pkey.
INSERT INTO netting_confirmations (cycle_id, party, file_id, line, direction, amount, paid_at)
SELECT @cycle_id, c.party, @file_id, c.line, c.direction, c.amount, c.paid_at
FROM (
    SELECT unnest(@parties::text[]) AS party, unnest(@lines::bigint[]) AS line, unnest(@directions::text[]) AS direction,
           unnest(@amounts::bigint[]) AS amount, unnest(@paid_at::timestamptz[]) AS paid_at
) AS c
ORDER BY c.party
ON CONFLICT (cycle_id, party) DO NOTHING
RETURNING line;

-- name: OpenLines :many
-- The lines of a cycle that nobody confirmed, and that come to something.
-- Index: nettings_pkey, netting_confirmations_pkey.
SELECT n.party, n.debits, n.credits, n.debit_count, n.credit_count
FROM nettings AS n
WHERE n.cycle_id = @cycle_id AND n.net <> 0
  AND NOT EXISTS (SELECT FROM netting_confirmations AS c WHERE c.cycle_id = n.cycle_id AND c.party = n.party)
ORDER BY n.party;
