-- name: DecideCoreEvent :execrows
-- Nothing is written if it has a verdict, or if the name is another request's.
-- Index: core_events_pkey.
INSERT INTO core_events AS e (id, request, payment_id, refusal)
VALUES (@id::text, @request, nullif(@payment_id::text, ''), @refusal)
ON CONFLICT (id) DO UPDATE
SET payment_id = excluded.payment_id, refusal = excluded.refusal, at = now()
WHERE e.payment_id IS NULL AND e.refusal IS NULL AND e.request = excluded.request;

-- name: CoreEvent :one
-- Index: core_events_pkey.
SELECT (request = @request)::boolean AS same, coalesce(payment_id, '')::text AS payment_id, refusal
FROM core_events
WHERE id = @id::text;

-- name: FailCoreEvent :one
-- Index: core_events_pkey.
INSERT INTO core_events AS e (id, request, failures)
VALUES (@id::text, @request, 1)
ON CONFLICT (id) DO UPDATE SET failures = e.failures + 1
RETURNING failures;

-- name: BuryCoreEvent :execrows
-- The same event published again is one dead letter.
-- Index: dead_letters_once.
INSERT INTO dead_letters (source, message_id, msg_type, reason, payload)
VALUES (@source::text, @message_id::text, 'payment_request', @reason::text, @payload)
ON CONFLICT (message_id, source, sha256(payload)) WHERE message_id <> '' DO NOTHING;
