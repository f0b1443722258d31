package api_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// BenchmarkOrders takes orders through the whole handler, 16 clients at once, on a real PostgreSQL, and beside it the
// same rows written by the store alone: what is between the two is HTTP, JSON and the rules.
func BenchmarkOrders(b *testing.B) {
	b.Run("handler", func(b *testing.B) {
		w := newWorld(b)
		w.announced = make(chan store.Operation, b.N+1)
		body := order(nil)
		atOnce(b, func(n int64) error {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/pix", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+coreToken)
			r.Header.Set(edge.KeyHeader, fmt.Sprint("k", n))
			answer := httptest.NewRecorder()
			w.handler.ServeHTTP(answer, r)
			if answer.Code != http.StatusCreated {
				return fmt.Errorf("%d %s", answer.Code, answer.Body)
			}
			return nil
		})
		require.Len(b, w.announced, b.N)
	})
	b.Run("store", func(b *testing.B) {
		w := newWorld(b)
		keys, outbox := store.NewIdempotency(w.db), store.NewOutbox(w.db)
		document := []byte(order(nil))
		atOnce(b, func(n int64) error {
			key := fmt.Sprint("k", n)
			if _, err := keys.Begin(b.Context(), key, sha256.Sum256(document)); err != nil {
				return err
			}
			row := store.Payment{
				ID: w.id(us, w.now()), Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 1234, Channel: pix.CPM,
				Counterparty: them, Document: document, AcceptedAt: w.now(),
			}
			return w.db.InTx(b.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := w.payments.Insert(ctx, tx, row, "api")
				if err == nil {
					_, err = outbox.Add(ctx, tx, []store.Operation{{PaymentID: row.ID, MsgType: "pacs.008", Channel: pix.CPM, Body: document}})
				}
				if err == nil {
					err = keys.Finish(ctx, tx, key, http.StatusCreated, document)
				}
				return err
			})
		})
	})
}

// atOnce does b.N orders, eight clients per processor at once.
func atOnce(b *testing.B, do func(n int64) error) {
	b.Helper()
	var n atomic.Int64
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(n.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}
