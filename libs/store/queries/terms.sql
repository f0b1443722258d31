-- name: MintTerm :one
-- Index: leader_terms_pkey.
INSERT INTO leader_terms AS t (name, term, owner)
VALUES (@name, 1, @owner)
ON CONFLICT (name) DO UPDATE
SET term = t.term + 1, owner = excluded.owner, minted_at = now()
RETURNING term;

-- name: HoldTerm :one
-- The row lock makes the next Mint wait for this transaction: a term cannot end under a guarded write.
-- Index: leader_terms_pkey.
SELECT term FROM leader_terms WHERE name = @name FOR SHARE;
