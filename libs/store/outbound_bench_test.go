package store_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// BenchmarkOutbound measures the way of orders through the database, call by call: booked singly as the API does it,
// then sent and settled in POSTs of ten messages with one order each, and with ten. One operation is one order; what is
// reported is the time of processor that it costs the server.
func BenchmarkOutbound(b *testing.B) {
	for _, size := range []int{1, 10} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			s := setupBooks(b)
			const messages = 10
			used := serverTime(b, s)
			spent := map[string]time.Duration{}
			stage := func(name string, call func() error) {
				start := used()
				require.NoError(b, call())
				spent[name] += used() - start
			}
			payload := envelope(3000 + 1000*size)
			n := 0
			b.ResetTimer()
			for ; n < b.N; n += messages * size {
				ids, operations := make([]string, messages*size), []int64(nil)
				stage("us/booked", func() error {
					for i := range ids {
						ids[i] = e2e(n + i)
						if err := s.db.InTx(b.Context(), func(ctx context.Context, tx *store.Tx) error {
							if _, err := s.payments.Insert(ctx, tx, order(ids[i]), "api"); err != nil {
								return err
							}
							added, err := s.outbox.Add(ctx, tx, []store.Operation{operation(ids[i], "pacs.008")})
							operations = append(operations, added[0].ID)
							return err
						}); err != nil {
							return err
						}
					}
					return nil
				})
				stage("us/published", func() error { return s.outbox.MarkPublished(b.Context(), operations) })
				stage("us/claimed", func() error { _, _, err := s.outbound.Claim(b.Context(), operations); return err })
				drafts, posted := make([]store.Draft, messages), make([]store.Posted, messages)
				for i := range drafts {
					id := msgID(n + i)
					drafts[i] = draft(id, 1, operations[i*size:(i+1)*size]...)
					drafts[i].Message.Payload = payload
					posted[i] = store.Posted{MsgID: id, ResourceID: "PI" + string(id)}
				}
				stage("us/built", func() error { _, err := s.outbound.Build(b.Context(), drafts); return err })
				stage("us/sent", func() error { return s.outbound.Sent(b.Context(), posted) })
				stage("us/settled", func() error {
					return s.db.InTx(b.Context(), func(ctx context.Context, tx *store.Tx) error {
						_, err := s.payments.Move(ctx, tx, to(pix.Settled, ids...))
						return err
					})
				})
			}
			b.StopTimer()
			for name, d := range spent {
				b.ReportMetric(float64(d.Microseconds())/float64(n), name)
			}
		})
	}
}

// serverTime tells how long the processes that serve this database have run.
func serverTime(b *testing.B, s books) func() time.Duration {
	b.Helper()
	var pids []int
	rows, err := side(b, s.url).Query(b.Context(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1`, b.Name())
	require.NoError(b, err)
	pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(b, err)
	require.Len(b, pids, 1)
	return func() (sum time.Duration) {
		for _, pid := range pids {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
			require.NoError(b, err)
			var ns time.Duration
			_, err = fmt.Sscan(string(text), &ns)
			require.NoError(b, err)
			sum += ns
		}
		return sum
	}
}
