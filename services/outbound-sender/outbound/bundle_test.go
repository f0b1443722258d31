package outbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/transport"
)

func operation(t *testing.T, id int64, msgType string, v any) store.Operation {
	t.Helper()
	body, err := json.Marshal(v)
	require.NoError(t, err)
	return store.Operation{ID: id, MsgType: msgType, Channel: pix.CPM, Body: body}
}

func TestBundles(t *testing.T) {
	t.Parallel()
	order := func(id int64) store.Operation {
		return operation(t, id, msgPacs008, iso20022.CreditTransfer{EndToEndID: pix.EndToEndID(fmt.Sprint(id))})
	}
	alone := order(3)
	alone.Alone = true
	all, broken := bundles([]store.Operation{
		order(1),
		operation(t, 2, msgPacs002, iso20022.PaymentStatus{}),
		alone,
		order(4),
		order(5),
		operation(t, 6, msgPacs002, iso20022.PaymentStatus{}),
		operation(t, 7, "camt.060", iso20022.Camt060{}),
		operation(t, 8, "camt.060", iso20022.Camt060{}),
		operation(t, 9, "admi.002", struct{}{}),
		{ID: 10, MsgType: msgPacs004},
	}, Groups{Pacs008: 2, Pacs002: 10, Pacs004: 1})
	var got [][]int64
	for _, b := range all {
		var ids []int64
		for _, o := range b.ops {
			ids = append(ids, o.ID)
		}
		got = append(got, ids)
	}
	require.Equal(t, [][]int64{{1, 4}, {2, 6}, {3}, {5}, {7}, {8}}, got)
	require.Len(t, all[0].document.(*iso20022.Pacs008).Transactions, 2)
	require.Len(t, all[1].document.(*iso20022.Pacs002).Statuses, 2)
	require.Len(t, broken, 2)
	require.ErrorContains(t, broken[9], "which nobody sends")
	require.Error(t, broken[10])
	require.Len(t, all[0].singles(), 2)
}

func TestTheChannelSaysHowUrgentAPaymentIs(t *testing.T) {
	t.Parallel()
	d := payment(pix.CPM, iso20022.CreditTransfer{})
	require.Equal(t, iso20022.High, d.Priority)
	require.Equal(t, iso20022.PAGPRI, d.ServiceLevel)
	d = payment(pix.CSM, iso20022.CreditTransfer{})
	require.Equal(t, iso20022.Normal, d.Priority)
	require.Equal(t, iso20022.PAGAGD, d.ServiceLevel)
}

func TestJudge(t *testing.T) {
	t.Parallel()
	answer := func(kind transport.Kind, status int, problem string) error {
		e := &transport.Error{Kind: kind, Status: status, Exchange: transport.Exchange{FirstByte: 1, Complete: true}}
		if problem != "" {
			e.ProblemType = icom.ProblemType(problem)
		}
		return e
	}
	for _, tt := range []struct {
		err  error
		want verdict
	}{
		{nil, stored},
		{errors.New("something else"), unknown},
		{fmt.Errorf("wrapped: %w", answer(transport.Throttled, 429, "")), throttled},
		{answer(transport.NotSent, 0, ""), unwritten},
		{answer(transport.OutcomeUnknown, 0, ""), unknown},
		{answer(transport.PluginGone, 0, ""), unknown},
		{answer(transport.Unavailable, 503, icom.ProblemServiceUnavailable), unknown},
		{answer(transport.Malformed, 200, ""), unknown},
		{answer(transport.Malformed, 201, ""), stored},
		{answer(transport.Rejected, 403, icom.ProblemForbidden), barred},
		{answer(transport.Rejected, 401, ""), barred},
		{answer(transport.Rejected, 404, icom.ProblemNotFound), barred},
		{answer(transport.Gone, 410, ""), barred},
		{answer(transport.Rejected, http.StatusUnsupportedMediaType, ""), barred},
		{answer(transport.Rejected, http.StatusProxyAuthRequired, ""), barred},
		{answer(transport.Rejected, http.StatusMisdirectedRequest, ""), barred},
		{answer(transport.Rejected, http.StatusUpgradeRequired, ""), barred},
		{answer(transport.Rejected, http.StatusRequestHeaderFieldsTooLarge, ""), barred},
		{answer(transport.Rejected, 400, icom.ProblemInvalidHeader), barred},
		{answer(transport.Rejected, 400, icom.ProblemCharset), barred},
		{answer(transport.Rejected, 400, "badRequest"), declined},
		{answer(transport.Rejected, 400, ""), barred}, // nginx, which does not accept the certificate
		{&transport.Error{Kind: transport.Rejected, Status: 400, ProblemType: "about:blank"}, barred},
		{answer(transport.Rejected, 413, ""), declined},
		{answer(transport.Rejected, 408, ""), slow},
	} {
		require.Equal(t, tt.want, judge(tt.err), "%v", tt.err)
	}
}

func TestTheBucketIsSharedByReplicas(t *testing.T) {
	t.Parallel()
	now := clock.Reading{Wall: time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)}
	batch := []*parcel{{msgType: msgPacs008, operations: 10}}
	m := newMeter(pix.CPM, Traffic{Enforce: true, Replicas: 5}, now)
	posts := 0
	for ; m.wait(now, batch) == 0; posts++ {
		m.debit(now, batch)
	}
	require.Equal(t, 75, posts, "a fifth of 3750, ten at a time")
	require.LessOrEqual(t, m.tokens(now), 0.0)
	now.Wall = now.Wall.Add(time.Second)
	require.Zero(t, m.wait(now, batch))
	require.InDelta(t, 150, m.tokens(now), 0.01, "a fifth of 750 came back")

	observed := newMeter(pix.CPM, Traffic{Replicas: 1}, now)
	for range 1000 {
		observed.debit(now, batch)
	}
	require.Zero(t, observed.wait(now, batch))
	require.InDelta(t, 3750-10000, observed.tokens(now), 0.01)
}

func TestConfigNamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	good := Config{ISPB: "12345678", Workers: map[pix.Channel]int{pix.CPM: 2}}.WithDefaults()
	require.NoError(t, good.Validate())
	for says, change := range map[string]func(*Config){
		"has 7 workers":            func(c *Config) { c.Workers = map[pix.Channel]int{pix.CPM: 7} },
		"group of pacs.002 is 11":  func(c *Config) { c.Groups.Pacs002 = 11 },
		"a number is -1":           func(c *Config) { c.Ahead = -1 },
		"halt pauses from 2m":      func(c *Config) { c.HaltFirst = 2 * time.Minute },
		"resend pauses from 1m0s":  func(c *Config) { c.Resend.First = time.Minute },
		"a time is 0s, want at le": func(c *Config) { c.IdleAfter = 0 },
		"ISPB":                     func(c *Config) { c.ISPB = "x" },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), says)
	}
}
