package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// load reads a configuration from the environment alone.
func load(t *testing.T, environ ...string) Config {
	t.Helper()
	base := []string{
		"ICOM_ISPB=12345678", "REDIS_HOST=redis", "DATABASE_URL=postgres://u:p@db/cabine", "NATS_URL=nats://nats:4222",
		"CABINE_TRANSPORT_PLUGIN=/bin/true",
	}
	cfg, _, err := core.Load(Defaults(), core.Source{Environ: append(base, environ...)})
	require.NoError(t, err)
	return cfg
}

func TestDefaultsAreComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	require.NoError(t, cfg.Validate())
	in := cfg.inbound("r").WithDefaults()
	require.Equal(t, map[pix.Channel]int{pix.CPM: 4, pix.CSM: 4}, in.Workers)
	require.Equal(t, inbound.Continuous{Floor: 200 * time.Millisecond}, in.Schedule)
	require.Equal(t, 30*time.Second, in.Publisher.RepublishEvery)
	require.Equal(t, 5*time.Minute, in.Publisher.StuckAge)
}

// The owner's variable says how many slots may poll; the rest is left to sending.
func TestOwnersSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		environ    string
		workers    int
		poll, send int
	}{
		{"ICOM_MAX_SLOTS=4", 4, 4, 2},
		{"ICOM_MAX_SLOTS=6", 6, 4, 0},
		{"ICOM_CPM_MAX_SLOTS=6", 6, 4, 0},
		{"ICOM_CPM_MAX_SLOTS=2", 2, 2, 4},
	} {
		cfg := load(t, tt.environ)
		require.NoError(t, cfg.Validate(), tt.environ)
		require.Equal(t, tt.workers, cfg.inbound("r").Workers[pix.CPM], tt.environ)
		require.Equal(t, map[lease.Class]int{lease.Poll: tt.poll, lease.Send: tt.send}, cfg.ICOM.Set(pix.CPM).Floors, tt.environ)
	}
}

func TestAlignedSchedule(t *testing.T) {
	t.Parallel()
	cfg := load(t, "CABINE_POLL_SCHEDULE=aligned")
	require.NoError(t, cfg.Validate())
	require.Equal(t, inbound.Aligned{Cycle: 4167 * time.Millisecond, Stagger: 694 * time.Millisecond, Floor: 100 * time.Millisecond},
		cfg.inbound("r").Schedule)
	require.ErrorContains(t, load(t, "CABINE_POLL_SCHEDULE=aligned", "CABINE_POLL_STAGGER=5s").Validate(), "stagger 5s")
}

func TestPublishingTakesNoTimeOrNumberThatIsNone(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"republish_every": "0s", "republish_age": "-1s", "sweep_every": "0s", "stuck_age": "-5m", "stuck_most": "0s",
		"alarm_attempts": "0", "queue_rows": "-1",
	} {
		err := load(t, "CABINE_PUBLISH_"+strings.ToUpper(name)+"="+bad).Validate()
		require.ErrorContains(t, err, "publish."+name)
	}
	require.ErrorContains(t, load(t, "CABINE_PUBLISH_STUCK_MOST=1m").Validate(), "repeats after 5m0s to 1m0s")
	require.Equal(t, 100, load(t, "CABINE_NATS_MAX_IN_FLIGHT=100").inbound("r").Publisher.BatchRows, "what the bus can have in flight")
}

func TestWiringIsComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	id := core.NewIdentity("icom-poller", "test", "r")
	runner := core.NewRunner(cfg.Stop, clock.System(), quiet(), func(int) {})
	require.NoError(t, fx.ValidateApp(core.App(id, cfg, quiet(), runner, wire)))
}

func TestPrintedConfigurationHidesSecrets(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, core.Print(&out, load(t, "REDIS_PASSWORD=hunter2")))
	require.NotContains(t, out.String(), "hunter2")
	require.Contains(t, out.String(), "placement: spread")
}
