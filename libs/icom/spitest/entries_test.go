package spitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/statement"
)

const owner, virtual = pix.ISPB("12345678"), pix.ISPB("99999A04")

var midnight = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// unsent is an SPI whose ledger a test fills, and which sends nothing.
func unsent(t testing.TB) *SPI {
	t.Helper()
	id, err := signaturetest.New(string(pix.SPI), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.NoError(t, err)
	signer, err := id.Signer()
	require.NoError(t, err)
	s, err := New(Config{Signer: signer, Participants: []Participant{
		{ISPB: owner, Balance: pix.MaxAmount}, {ISPB: virtual, Virtual: true},
	}})
	require.NoError(t, err)
	return s
}

// settles places the n-th order of a test, which is accepted at once.
func (s *SPI) settles(n int, at time.Time) *order {
	id := fmt.Sprintf("E%s202612010000%011d", owner, n)
	o := &order{
		id: id, original: id, kind: pix.Payment, sender: owner, debited: owner, credited: virtual, amount: 1_00, received: at,
		limit: at.Add(time.Minute),
	}
	s.ledger.place(o, "", at)
	return o
}

func (s *SPI) file(t testing.TB, from, to time.Time) (*File, []string) {
	t.Helper()
	f, err := s.makeFile(t.Context(), question{owner: owner, from: from, to: to})
	require.NoError(t, err)
	r, err := statement.Open(bytes.NewReader(f.content), int64(len(f.content)), statement.Limits{})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	var ids []string
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			require.Equal(t, f.Hash, r.Summary().Hash)
			return f, ids
		}
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
}

// TestBordersOfAPeriod: its first instant belongs to it and its last one does not, by the millisecond as it is told.
func TestBordersOfAPeriod(t *testing.T) {
	t.Parallel()
	s := unsent(t)
	day := 24 * time.Hour
	var all []string
	for i, at := range []time.Duration{-1, 0, 1, time.Hour, day - time.Millisecond, day - 1, day, day + 1} {
		all = append(all, s.settles(i, midnight.Add(at)).id)
	}
	for _, p := range []struct{ from, to, first, past int }{{-1, 0, 0, 1}, {0, 1, 1, 6}, {1, 2, 6, 8}, {-1, 2, 0, 8}, {5, 6, 8, 8}} {
		f, ids := s.file(t, midnight.Add(time.Duration(p.from)*day), midnight.Add(time.Duration(p.to)*day))
		require.Equal(t, all[p.first:p.past:p.past], append([]string{}, ids...), "%v", p)
		require.Equal(t, len(ids), f.Entries)
	}
}

// TestNothingSettlesInAPeriodThatWasTold: what is decided behind its time counts after the files that were made.
func TestNothingSettlesInAPeriodThatWasTold(t *testing.T) {
	t.Parallel()
	s := unsent(t)
	s.settles(1, midnight.Add(time.Second))
	to := midnight.Add(2 * time.Second)
	_, first := s.file(t, midnight, to)
	late := s.settles(2, to.Add(-time.Millisecond))
	require.Equal(t, to, late.ended)
	_, again := s.file(t, midnight, to)
	require.Equal(t, first, again)
	require.Equal(t, to.Add(time.Second), s.settles(3, to.Add(time.Second)).ended)
	require.Equal(t, to.Add(time.Second), s.settles(4, to).ended, "settlements have an order")
	_, all := s.file(t, midnight, to.Add(time.Minute))
	require.Len(t, all, 4)
}

// TestFileOfMany: the time of a hundred thousand entries is told, and bounded far above what it is.
func TestFileOfMany(t *testing.T) {
	t.Parallel()
	const entries = 100_000
	s := unsent(t)
	require.NoError(t, s.SetFaults(Fault{At: AtEntry, Do: Drop, Rate: 0.001}))
	for i := range entries {
		s.settles(i, midnight.Add(time.Duration(i)*time.Millisecond))
	}
	began := time.Now()
	f, err := s.makeFile(t.Context(), question{owner: owner, from: midnight, to: midnight.Add(time.Hour)})
	took := time.Since(began)
	require.NoError(t, err)
	t.Logf("%d entries, %d bytes, %v", f.Entries, len(f.content), took)
	require.Equal(t, entries, f.Settled)
	require.Equal(t, entries, f.Entries+f.Lost)
	require.InDelta(t, entries/1000, f.Lost, 60)
	require.Len(t, f.Touched, f.Lost)
	require.Less(t, took, 20*time.Second)
}

// BenchmarkFile is a file of a million entries.
func BenchmarkFile(b *testing.B) {
	const entries = 1_000_000
	s := unsent(b)
	for i := range entries {
		s.settles(i, midnight.Add(time.Duration(i)*time.Millisecond))
	}
	b.ResetTimer()
	for b.Loop() {
		f, err := s.makeFile(b.Context(), question{owner: owner, from: midnight, to: midnight.Add(time.Hour)})
		require.NoError(b, err)
		b.ReportMetric(float64(len(f.content))/(1<<20), "MiB")
		require.Equal(b, entries, f.Entries)
	}
}

func TestTouchedIsBounded(t *testing.T) {
	t.Parallel()
	var f File
	for i := range maxTouched + 1 {
		f.touch(fmt.Sprint(i), Drop)
	}
	require.Len(t, f.Touched, maxTouched)
	require.Equal(t, "fa", another("0a"))
	require.Equal(t, "0a", another("fa"))
	require.Equal(t, pix.MaxAmount-1, beside(pix.MaxAmount))
	_, _, err := period(&iso20022.Period{FromDate: "2026-02-30", Times: &iso20022.PeriodTimes{From: "00:00:00.000Z", To: "24:00:00.000Z"}})
	require.Error(t, err)
}
