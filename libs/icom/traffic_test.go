package icom_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

func TestCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		msgType    string
		operations int
		want       float64
	}{
		{"pacs.008.spi.1.16", 10, 10},
		{"pacs.008", 0, 1},
		{"trck.002", 3, 3},
		{"pacs.002.spi.1.17", 1, 0.2},
		{"pacs.002", 10, 2},
		{"pacs.004", 10, 1},
		{"pibr.001", 1, 1},
		{"", 5, 1},
	} {
		require.InDelta(t, tt.want, icom.Cost(tt.msgType, tt.operations), 1e-9, tt.msgType)
	}
}

func TestPrimaryBucket(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	tr := icom.NewTraffic(pix.CPM, now)
	require.InDelta(t, 3750, tr.Tokens(now, "pacs.008"), 1e-9)

	// It lets in while anything is left, and goes below zero with what it let in.
	tr.Debit(now, "pacs.008", 3749)
	require.Zero(t, tr.Wait(now, "pacs.008"))
	tr.Debit(now, "pacs.008", 10)
	require.InDelta(t, -9, tr.Tokens(now, "pacs.008"), 1e-9)
	wait := tr.Wait(now, "pacs.008")
	require.InDelta(t, 0.012, wait.Seconds(), 0.0001) // 9 of 750 a second
	require.NotZero(t, tr.Wait(now.Add(wait-2*time.Microsecond), "pacs.002"), "one bucket for all types")
	require.Zero(t, tr.Wait(now.Add(wait), "pacs.002"))

	require.InDelta(t, 3750, tr.Tokens(now.Add(time.Hour), "pacs.008"), 1e-9, "never above its size")
	tr.Debit(now, "pacs.008", 3750)
	require.InDelta(t, 0, tr.Tokens(now.Add(-time.Hour), "pacs.008"), 1e-9, "a clock that stepped back adds nothing")
}

func TestAClockThatSteppedBackIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	tr := icom.NewTraffic(pix.CPM, now)
	tr.Debit(now, "pacs.008", 4000)
	now = now.Add(-12 * time.Hour)
	require.InDelta(t, -250, tr.Tokens(now, "pacs.008"), 1e-9)
	require.Zero(t, tr.Wait(now.Add(time.Second), "pacs.008"), "a bank that has time as it should has refilled")
}

func TestSecondaryBucketsOfDayAndNight(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 2, 11, 0, 0, 0, time.UTC) // 08:00 in Brasília
	night := day.Add(-time.Second)
	tr := icom.NewTraffic(pix.CSM, night)
	require.InDelta(t, 5000, tr.Tokens(night, "pacs.008"), 1e-9)
	require.InDelta(t, 350, tr.Tokens(day, "pacs.008"), 1e-9, "the morning's bucket is smaller")
	tr.Debit(day, "pacs.008", 350)
	require.InDelta(t, 35, tr.Tokens(day.Add(time.Second), "pacs.008"), 1e-6)

	midnight := time.Date(2026, 1, 3, 3, 0, 0, 0, time.UTC)
	require.InDelta(t, 350, tr.Tokens(midnight, "pacs.008"), 1e-6)
	require.InDelta(t, 700, tr.Tokens(midnight.Add(time.Second), "pacs.008"), 1e-6)

	// Tracking messages have a bucket of their own.
	require.InDelta(t, 1500, tr.Tokens(midnight, "trck.002"), 1e-9)
	tr.Debit(midnight, "trck.002", 1600)
	require.InDelta(t, 0.2, tr.Wait(midnight, "trck.002").Seconds(), 0.0001)
	require.Zero(t, tr.Wait(midnight, "pacs.008"))
	require.InDelta(t, 3750, icom.NewTraffic(pix.CPM, day).Tokens(day, "trck.002"), 1e-9, "only on the secondary channel")
}
