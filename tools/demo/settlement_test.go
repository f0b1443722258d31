package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Every law of settlement and reconciliation that the report can see broken ends the demo with 1.
func TestReportNamesBrokenSettlement(t *testing.T) {
	t.Parallel()
	sound := Report{Leader: Leader{Changes: 2}, Cycles: Cycles{Closed: 9}, Reconciliation: Reconciliation{Entries: 100}}
	judge := func(r *Report) {
		r.judgeSettlement()
		r.judgeReconciliation()
	}
	judge(&sound)
	require.Empty(t, sound.Broken)
	for name, spoil := range map[string]func(*Report){
		"two leaders":      func(r *Report) { r.Leader.Overlaps = 1 },
		"one leader only":  func(r *Report) { r.Leader.Changes = 0 },
		"timeouts":         func(r *Report) { r.JetStream.Timeouts = 1 },
		"creates":          func(r *Report) { r.JetStream.Creates = 1 },
		"no cycle":         func(r *Report) { r.Cycles.Closed = 0 },
		"twice":            func(r *Report) { r.Cycles.NettedTwice = 1 },
		"never":            func(r *Report) { r.Cycles.NotNetted = 1 },
		"sums":             func(r *Report) { r.Cycles.Lines = []string{"differs"} },
		"missing here":     func(r *Report) { r.Reconciliation.MissingHere = 1 },
		"missing there":    func(r *Report) { r.Reconciliation.MissingThere = 1 },
		"differing":        func(r *Report) { r.Reconciliation.Differing = 1 },
		"doubled":          func(r *Report) { r.Reconciliation.Doubled = 1 },
		"nothing compared": func(r *Report) { r.Reconciliation.Entries = 0 },
		"failed":           func(r *Report) { r.Reconciliation.Lines = []string{"failed: no answer"} },
	} {
		r := sound
		spoil(&r)
		judge(&r)
		require.Len(t, r.Broken, 1, name)
	}
}

// heard is a hearing of what replicas said, each line at a second of its own.
func heard(lines ...string) *hearing {
	h := &hearing{}
	for i, text := range lines {
		var replica, msg string
		var term int
		_, _ = fmt.Sscanf(text, "%s %s %d", &replica, &msg, &term)
		at := time.Date(2026, 12, 1, 0, 0, i, 0, time.UTC)
		switch msg {
		case "leads":
			msg = "leading"
		case "gives":
			msg = "leadership given up"
		case "loses":
			msg = "leadership lost"
		case "dies":
			h.gone(replica, at)
			continue
		}
		h.read(payer, replica, fmt.Appendf(nil, `{"time":%q,"msg":%q,"leadership":"settlement:1","term":%d}`, at.Format(time.RFC3339Nano), msg, term))
	}
	return h
}

func TestReignsThatOverlapAreCounted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lines             []string
		changes, overlaps int
		leader            string
	}{
		"one after the other":        {[]string{"a leads 1", "a gives 1", "b leads 2", "b loses 2", "c leads 4"}, 2, 0, "c"},
		"killed":                     {[]string{"a leads 1", "a dies", "b leads 2"}, 1, 0, "b"},
		"again itself":               {[]string{"a leads 1", "a loses 1", "a leads 2"}, 1, 0, "a"},
		"the old one never ended":    {[]string{"a leads 1", "b leads 2"}, 1, 1, "b"},
		"the old one ended too late": {[]string{"a leads 1", "b leads 2", "a gives 1"}, 1, 1, "b"},
		"two under one term":         {[]string{"a leads 1", "b leads 1", "a gives 1"}, 0, 1, "b"},
		"one term twice":             {[]string{"a leads 1", "a gives 1", "b leads 1"}, 0, 1, "b"},
		"nobody":                     {nil, 0, 0, ""},
	} {
		h := heard(tc.lines...)
		l := h.leaders()
		require.Equal(t, []int{tc.changes, tc.overlaps}, []int{l.Changes, l.Overlaps}, name)
		require.Len(t, l.Lines, tc.overlaps, name)
		require.Equal(t, tc.leader, h.leader(payer), name)
		require.Empty(t, h.leader(receiver))
	}
}

func TestSilenceOfTheBusIsHeard(t *testing.T) {
	t.Parallel()
	h := &hearing{}
	for _, line := range []string{
		`{"msg":"bus disconnected","error":null}`, // its own end
		`{"msg":"message failed","error":"x"}`,    // not the bus
		`no json`,
	} {
		h.read(payer, "a", []byte(line))
	}
	require.Empty(t, h.silent)
	for _, msg := range silences() {
		h.read(payer, "a", fmt.Appendf(nil, `{"msg":%q,"error":"timeout"}`, msg))
	}
	require.Len(t, h.silent, len(silences()))
}

func TestLinesAreHeldToTheirPayments(t *testing.T) {
	t.Parallel()
	at := line{1, receiver, pix.Out}
	for name, tc := range map[string]struct {
		own, written map[line]total
		twice        int64
		lines        int
	}{
		"equal":         {map[line]total{at: {2, 30}}, map[line]total{at: {2, 30}, {1, receiver, pix.In}: {}}, 0, 0},
		"one too many":  {map[line]total{at: {2, 30}}, map[line]total{at: {3, 45}}, 1, 1},
		"one too few":   {map[line]total{at: {2, 30}}, map[line]total{at: {1, 10}}, 0, 1},
		"another sum":   {map[line]total{at: {2, 30}}, map[line]total{at: {2, 31}}, 0, 1},
		"another cycle": {map[line]total{at: {2, 30}}, map[line]total{at: {2, 30}, {2, receiver, pix.Out}: {2, 30}}, 2, 1},
		"no line":       {map[line]total{at: {2, 30}}, nil, 0, 1},
	} {
		twice, lines := netting{own: tc.own, written: tc.written}.judge(payer)
		require.Equal(t, tc.twice, twice, name)
		require.Len(t, lines, tc.lines, name)
	}
}
