package bacen_test

import (
	"encoding/json"
	"log/slog"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
	"github.com/cabine-pix/cabine/libs/transport/transporttest"
	"github.com/cabine-pix/cabine/plugins/transport-bacen/bacen"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

// simulator is the simulated bank as the conformance suite sees it.
type simulator struct {
	t    *testing.T
	bank *icomtest.Bank
}

func (s simulator) Requests() int {
	return int(s.bank.Report().Participant(pix.CPM, ispb).RequestsTotal)
}

func (s simulator) Connections() int {
	return s.bank.Report().Participant(pix.CPM, ispb).ConnectionsNow
}

func (s simulator) Enqueue(body []byte) { s.bank.Enqueue(pix.CPM, ispb, body) }

func (s simulator) CutConnections() { s.bank.CutConnections(pix.CPM) }

func (s simulator) Misbehave(f transporttest.Fault) {
	if f == (transporttest.Fault{}) {
		require.NoError(s.t, s.bank.SetFaults(pix.CPM))
		return
	}
	require.NoError(s.t, s.bank.SetFaults(pix.CPM, icomtest.Fault{
		Delay: f.Delay, Drop: icomtest.Drop(f.Cut), Status: f.Status, RetryAfter: f.RetryAfter,
	}))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "transport-bacen")
	out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput()
	require.NoError(t, err, string(out))
	pki, err := icomtest.NewPKI()
	require.NoError(t, err)
	start := func(t *testing.T) (bacen.Config, simulator) {
		bank := icomtest.Start(t, icomtest.Config{PKI: pki, Hold: 2 * time.Second})
		return configure(t, bank), simulator{t: t, bank: bank}
	}
	transporttest.Run(t, transporttest.Subject{
		Channel: pix.CPM,
		ISPB:    ispb,
		Open: func(t *testing.T) (transport.Transport, transporttest.Bank) {
			cfg, bank := start(t)
			tr, err := bacen.New(cfg, clock.System(), slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			t.Cleanup(tr.Close)
			return tr, bank
		},
		Process: func(t *testing.T) (plugin.HostConfig, transporttest.Bank) {
			cfg, bank := start(t)
			text, err := json.Marshal(cfg)
			require.NoError(t, err)
			return plugin.HostConfig{
				Path: binary, Env: []string{bacen.EnvConfig + "=" + string(text)}, MinBackoff: 10 * time.Millisecond,
			}, bank
		},
	})
}
