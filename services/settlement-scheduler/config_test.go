package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// load reads a configuration from the environment alone.
func load(t *testing.T, environ ...string) Config {
	t.Helper()
	base := []string{
		"ICOM_ISPB=12345678", "DATABASE_URL=postgres://u:hunter2@db/cabine", "NATS_URL=nats://nats:4222", "REDIS_HOST=redis",
		"CABINE_LEASE_NO_REPLICAS=true",
	}
	cfg, _, err := core.Load(Defaults(), core.Source{Environ: append(base, environ...)})
	require.NoError(t, err)
	return cfg
}

func TestDefaultsAreComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	require.NoError(t, cfg.Validate())
	require.Equal(t, "settlement:12345678", cfg.leadership())
	require.Equal(t, 200, cfg.obligation().Batch)
	require.Equal(t, 5*time.Minute, cfg.republish().Again)
	require.Equal(t, 15*time.Minute, cfg.schedule().Orders)
	plan, err := cfg.Cycles.plan()
	require.NoError(t, err)
	require.Equal(t, "dia", plan.After(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)).Type)
	require.Equal(t, 100, load(t, "CABINE_NATS_MAX_IN_FLIGHT=100").republish().Batch, "what the bus can have in flight")
}

func TestListsAreConfiguration(t *testing.T) {
	t.Parallel()
	cfg := load(t, "CABINE_CYCLES_ENDS=manha=12:00,dia=24:00", "CABINE_CYCLES_PARTIES=7=11111111,0008=22222222", "CABINE_CYCLES_HOLIDAYS=2027-01-25")
	require.NoError(t, cfg.Validate())
	parties, err := cfg.Cycles.parties()
	require.NoError(t, err)
	require.EqualValues(t, map[string]pix.ISPB{"7": "11111111", "0008": "22222222"}, parties)
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	t.Parallel()
	for environ, says := range map[string]string{
		"CABINE_CYCLES_ENDS=dia":                         `"dia" is no type=HH:MM`,
		"CABINE_CYCLES_ENDS=a=12:00,b=12:00":             "each another",
		"CABINE_CYCLES_HOLIDAYS=25/01/2027":              "want YYYY-MM-DD",
		"CABINE_CYCLES_PARTIES=0001":                     "is no branch=ISPB",
		"CABINE_CYCLES_PARTIES=1=11111111,0001=22222222": "are the same",
		"CABINE_CYCLES_DRILL=1500ms":                     "drill: period is 1.5s",
		"CABINE_CYCLES_PATIENCE=1s":                      "patience is 1s",
		"CABINE_CORE_EVENTS_WORKERS=99":                  "Workers is 99",
		"CABINE_CORE_EVENTS_MAX_BODY=70000":              "MaxBody is 70000",
		"CABINE_OBLIGATIONS_BATCH=9999":                  "Batch is 9999",
		"CABINE_OBLIGATIONS_ANNOUNCE_MOST=1s":            "most is 1s",
		"CABINE_AGES_ORDERS=1s":                          "Orders is 1s",
	} {
		require.ErrorContains(t, load(t, environ).Validate(), says, environ)
	}
}

func TestWiringIsComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	id := core.NewIdentity("settlement-scheduler", "test", "r")
	runner := core.NewRunner(cfg.Stop, clock.System(), quiet(), func(int) {})
	require.NoError(t, fx.ValidateApp(core.App(id, cfg, quiet(), runner, wire)))
}

func TestPrintedConfigurationHidesSecrets(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, core.Print(&out, load(t)))
	require.NotContains(t, out.String(), "hunter2")
	require.Contains(t, out.String(), "dia=24:00")
}
