package store

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/cabine-pix/cabine/libs/store/db"
)

// KeyState says what is known of an idempotency key.
type KeyState string

// The states of a key, seen by a request that comes with it.
const (
	// KeyFresh: the request is the first, and is to be worked on.
	KeyFresh KeyState = "fresh"
	// KeyAnswered: the same request was answered before.
	KeyAnswered KeyState = "answered"
	// KeyInProgress: the same request is being worked on.
	KeyInProgress KeyState = "in_progress"
	// KeyMismatch: the key came with another request.
	KeyMismatch KeyState = "mismatch"
)

// Key is what Begin found.
type Key struct {
	State KeyState
	// Status and Body are the answer, if State is KeyAnswered.
	Status int
	Body   []byte
}

// KeyAbandonedAfter is when a request that did not finish is taken for dead and the next one with its key is fresh.
// Should it live after all, its Finish fails: one of the two has an effect.
const KeyAbandonedAfter = 10 * time.Second

// Idempotency keeps answers by the keys that clients gave with their requests.
type Idempotency struct {
	db *DB
	q  *db.Queries
}

// NewIdempotency returns the keys in d.
func NewIdempotency(d *DB) *Idempotency { return &Idempotency{db: d, q: db.New()} }

// Begin claims a key for a request, given as the SHA-256 of all that makes it the same request. After KeyFresh, call
// Finish in the transaction of the effect, or Abandon if there is none.
func (i *Idempotency) Begin(ctx context.Context, key string, request [sha256.Size]byte) (Key, error) {
	var row db.BeginKeyRow
	err := i.db.call(ctx, "begin key", func(ctx context.Context, conn db.DBTX) error {
		// A key that was committed after the statement began is in its way and not seen; the next one sees it. A third is
		// needed only if the key is abandoned in between.
		for range 3 {
			var err error
			row, err = i.q.BeginKey(ctx, conn, db.BeginKeyParams{
				Key: key, Request: request[:], AbandonedAfter: KeyAbandonedAfter,
			})
			if err != nil || row.Fresh || row.Known {
				return err
			}
		}
		return ErrUnavailable
	})
	switch {
	case err != nil:
		return Key{}, err
	case row.Fresh:
		return Key{State: KeyFresh}, nil
	case !row.Same:
		return Key{State: KeyMismatch}, nil
	case row.Status == 0:
		return Key{State: KeyInProgress}, nil
	}
	return Key{State: KeyAnswered, Status: int(row.Status), Body: row.Answer}, nil
}

// Finish keeps the answer, in the transaction of the effect that it tells of. ErrNotFound: the key is not in progress,
// so somebody else has answered; the transaction must not be committed.
func (i *Idempotency) Finish(ctx context.Context, tx *Tx, key string, status int, body []byte) error {
	n, err := i.q.FinishKey(ctx, tx.tx, db.FinishKeyParams{Key: key, Status: int32(status), Answer: body})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return translate("finish key", err)
}

// Abandon frees a key whose request had no effect. An answer that is kept stays.
func (i *Idempotency) Abandon(ctx context.Context, key string) error {
	return i.db.call(ctx, "abandon key", func(ctx context.Context, conn db.DBTX) error {
		_, err := i.q.AbandonKey(ctx, conn, key)
		return err
	})
}

// Purge forgets up to 10000 keys older than olderThan, and returns how many; call it again while there are so many.
func (i *Idempotency) Purge(ctx context.Context, olderThan time.Duration) (int64, error) {
	var n int64
	err := i.db.call(ctx, "purge keys", func(ctx context.Context, conn db.DBTX) (err error) {
		n, err = i.q.PurgeKeys(ctx, conn, olderThan)
		return err
	})
	return n, err
}
