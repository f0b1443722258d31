package store_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkNetting measures closing a cycle of a million obligations with 800 parties, and netting it again.
func BenchmarkNetting(b *testing.B) {
	const obligations = 1_000_000
	for range b.N {
		b.StopTimer()
		c := setupClearing(b, nil)
		ids := c.openWindows(b, 0, 1)
		_, err := side(b, c.url).Exec(b.Context(), `
			INSERT INTO obligations (payment_id, cycle_id, kind, direction, amount, party, settled_at)
			SELECT 'E12345678202612010000' || lpad(n::text, 11, '0'), $1::bigint, 'payment', CASE n % 2 WHEN 0 THEN 'in' ELSE 'out' END,
				1 + n % 100000, lpad((n * 7919 % 800)::text, 8, '0'), now()
			FROM generate_series(1, $2::bigint) AS n`, ids[0], obligations)
		require.NoError(b, err)
		c.seal(b, ids[0])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.StartTimer()
		closed := c.close(b, ids[0])
		b.StopTimer()
		runtime.ReadMemStats(&after)
		require.EqualValues(b, obligations, closed.Obligations)
		require.Len(b, c.lines(b, ids[0]), 800)
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "net_1m_s")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/(1<<20), "client-MiB")
		require.NoError(b, c.cycles.Check(b.Context(), ids[0]))
	}
}

// BenchmarkBook measures one worker that writes obligations of payments that settled, a hundred at a time.
func BenchmarkBook(b *testing.B) {
	const batch = 100
	c := setupClearing(b, nil)
	c.openWindows(b, 0, 23)
	ids := make([]string, b.N*batch)
	for i := range ids {
		ids[i] = e2e(i)
	}
	conn := side(b, c.url)
	_, err := conn.Exec(b.Context(), `
		INSERT INTO payments (id, kind, direction, state, amount, channel, counterparty, document, accepted_at, settled_at)
		SELECT id, 'payment', 'in', 'settled', 1, 'cpm', '87654321', '{}', $2::timestamptz, $2 FROM unnest($1::text[]) AS id`,
		ids, window(1).OpensAt)
	require.NoError(b, err)
	_, err = conn.Exec(b.Context(), "INSERT INTO obligations_due SELECT id, settled_at FROM payments")
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		booked := c.book(b, ids[i*batch:(i+1)*batch]...)
		if len(booked.Fresh) != batch {
			b.Fatal(fmt.Sprint(booked))
		}
	}
	b.ReportMetric(float64(len(ids))/b.Elapsed().Seconds(), "obligations/s")
}
