package decision_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/corebank/corebanktest"
	"github.com/cabine-pix/cabine/services/payments/decision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "E99999004202607010900abcdefghijk"

// ample is more time than any answer here takes.
const ample = 30 * time.Second

func keys() corebank.Keys {
	return corebank.Keys{{ID: "k1", Secret: []byte(strings.Repeat("s", corebank.MinSecret))}}
}

type bundle struct {
	bank *corebanktest.Core
	core *decision.Core
}

func setup(t *testing.T, change func(*decision.Config), bank corebanktest.Config, clk clock.Clock) bundle {
	t.Helper()
	bank.Keys = keys()
	sim, err := corebanktest.New(bank)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(sim)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	cfg := decision.Config{URL: server.URL + "/decisao", Keys: keys()}
	if change != nil {
		change(&cfg)
	}
	core, err := decision.New(cfg, decision.Deps{Clock: clk, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(core.Close)
	return bundle{bank: sim, core: core}
}

func (b bundle) decide(t *testing.T) decision.Verdict {
	t.Helper()
	v, err := b.core.Decide(t.Context(), corebank.Question{EndToEndID: id, Amount: "12.34"}, ample)
	require.NoError(t, err)
	return v
}

func TestTheCoreDecides(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, corebanktest.Config{}, clock.System())
	require.Equal(t, decision.Verdict{Accepted: true, Who: decision.ByCore}, b.decide(t))
	b.bank.Decide(corebank.Answer{EndToEndID: id, Decision: corebank.Rejected, Reason: "AC03", Detail: "conta\nencerrada"})
	require.Equal(t, decision.Verdict{Reason: "AC03", Detail: "contaencerrada", Who: decision.ByCore}, b.decide(t))
}

func TestWhateverIsNoAnswerIsSilence(t *testing.T) {
	t.Parallel()
	for fault, want := range map[corebanktest.Fault]struct {
		why   string
		asked int
	}{
		corebanktest.Dead:         {"unreachable", 2},
		corebanktest.Hang:         {"timeout", 2},
		corebanktest.Unavailable:  {"unreachable", 2},
		corebanktest.Forbidden:    {"wrong_answer", 1},
		corebanktest.Redirect:     {"wrong_answer", 1},
		corebanktest.BadJSON:      {"wrong_answer", 1},
		corebanktest.BadSignature: {"signature", 1},
		corebanktest.Unsigned:     {"signature", 1},
		corebanktest.UnknownCode:  {"wrong_answer", 1},
		corebanktest.OtherPayment: {"wrong_answer", 1},
		corebanktest.HugeBody:     {"wrong_answer", 1},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *decision.Config) { c.Timeout = 2 * time.Second; c.AttemptTimeout = 500 * time.Millisecond }, corebanktest.Config{}, clock.System())
			b.bank.SetFault(fault)
			require.Equal(t, decision.Verdict{Reason: "AB09", Detail: "core is silent: " + want.why, Who: decision.ByRules}, b.decide(t))
			require.Equal(t, want.asked, b.bank.Asked(id))
			b.bank.SetFault(corebanktest.None)
			require.True(t, b.decide(t).Accepted, "one failure does not open the breaker")
		})
	}
	require.Len(t, corebanktest.Faults(), 11)
}

func TestSilenceMayBeConsent(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *decision.Config) { c.WhenSilent = decision.Accept }, corebanktest.Config{}, clock.System())
	b.bank.SetFault(corebanktest.Unavailable)
	require.Equal(t, decision.Verdict{Accepted: true, Detail: "core is silent: unreachable", Who: decision.ByRules}, b.decide(t))
}

func TestADeadCoreIsSoonNotAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *decision.Config) { c.OpenFor = time.Hour }, corebanktest.Config{}, clock.System())
	b.bank.SetFault(corebanktest.Forbidden)
	for range 20 {
		b.decide(t)
	}
	require.Equal(t, "core is silent: breaker_open", b.decide(t).Detail)
	require.Equal(t, 20, b.bank.Asked(id))
}

func TestNothingIsDecidedForACallerWhoStops(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, corebanktest.Config{}, clock.System())
	release := b.bank.Hold()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.core.Decide(ctx, corebank.Question{EndToEndID: id}, ample)
		ended <- err
	}()
	require.Eventually(t, func() bool { return b.bank.Asked(id) == 1 }, ample, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestTheTimeLeftIsTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, corebanktest.Config{}, clock.System())
	defer b.bank.Hold()()
	began := time.Now()
	v, err := b.core.Decide(t.Context(), corebank.Question{EndToEndID: id}, 100*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, "core is silent: timeout", v.Detail)
	require.Less(t, time.Since(began), 5*time.Second)
}

// A machine whose clock is 12 h off is refused by the core, and says so.
func TestAClockThatIsOffIsSilence(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake() // stands on a fixed day
	b := setup(t, nil, corebanktest.Config{}, fake)
	require.Equal(t, decision.Verdict{Reason: "AB09", Detail: "core is silent: wrong_answer", Who: decision.ByRules}, b.decide(t))
	require.Equal(t, 1, b.bank.Report().Refused)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, decision.Config{URL: "http://127.0.0.1:1/x", Keys: keys()}.WithDefaults().Validate())
	require.NoError(t, decision.Config{URL: "https://core/x", Keys: keys()}.WithDefaults().Validate())
	require.NoError(t, decision.Config{URL: "http://core/x", Keys: keys(), Plaintext: true}.WithDefaults().Validate())
	for says, bad := range map[string]decision.Config{
		"http to another machine": {URL: "http://core/x", Keys: keys()},
		"URL is empty":            {Keys: keys()},
		"URL has a user":          {URL: "https://a:hunter2@core/x", Keys: keys()},
		"no key":                  {URL: "https://core/x"},
		"WhenSilent is":           {URL: "https://core/x", Keys: keys(), WhenSilent: "maybe"},
		"-1 questions at once":    {URL: "https://core/x", Keys: keys(), Concurrency: -1},
	} {
		err := bad.WithDefaults().Validate()
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
