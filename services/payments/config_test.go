package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// secret is long enough for a key, and nothing that may be printed.
const secret = "hunter2-hunter2-hunter2-hunter2-hunter2"

// load reads a configuration from the environment alone.
func load(t *testing.T, environ ...string) Config {
	t.Helper()
	base := []string{
		"ICOM_ISPB=12345678", "DATABASE_URL=postgres://u:p@db/cabine", "NATS_URL=nats://nats:4222",
		"CABINE_CORE_URL=https://core/decisao", "CABINE_CORE_KEY_ID=k1", "CABINE_CORE_KEY=" + secret,
		"CABINE_SIGNATURE_SPI_CERTIFICATES=/spi.pem", "CABINE_API_TOKENS=app=" + secret,
	}
	cfg, _, err := core.Load(Defaults(), core.Source{Environ: append(base, environ...)})
	require.NoError(t, err)
	return cfg
}

func TestDefaultsAreComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	require.NoError(t, cfg.Validate())
	in, err := cfg.inbound()
	require.NoError(t, err)
	require.Equal(t, 64, in.Concurrency)
	require.Equal(t, 40*time.Second, in.SettleWithin)
	require.Equal(t, []string{"1.16"}, in.Versions["pacs.008"])
	require.Equal(t, 3*time.Second, cfg.announce().StuckAge)
	require.Equal(t, time.Minute, cfg.watch().EnquireAfter)
	require.Len(t, cfg.decision().Keys, 1)
	require.Equal(t, 256, cfg.announce().BatchRows)
	require.Equal(t, 100, load(t, "CABINE_NATS_MAX_IN_FLIGHT=100").announce().BatchRows, "what the bus can have in flight")
}

func TestKeysRotateAndMayComeFromFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("x", 40)+"\n"), 0o600))
	cfg := load(t, "CABINE_CORE_PREVIOUS_KEY_ID=k0", "CABINE_CORE_PREVIOUS_KEY_FILE="+file)
	require.NoError(t, cfg.Validate())
	keys := cfg.decision().Keys
	require.Equal(t, []string{"k1", "k0"}, []string{keys[0].ID, keys[1].ID})
	require.Len(t, keys[1].Secret, 40)
}

func TestVersionsAreConfiguration(t *testing.T) {
	t.Parallel()
	cfg := load(t, "CABINE_MESSAGES_VERSIONS=pacs.008=1.16,pacs.008=1.15")
	in, err := cfg.inbound()
	require.NoError(t, err)
	require.Equal(t, []string{"1.16", "1.15"}, in.Versions["pacs.008"])
	require.Equal(t, []string{"1.17"}, in.Versions["pacs.002"])
}

func TestWhatDoesNotFitIsNamed(t *testing.T) {
	t.Parallel()
	for environ, says := range map[string]string{
		"CABINE_CORE_URL=http://core/x":         "core: URL is http to another machine",
		"CABINE_CORE_WHEN_SILENT=perhaps":       `WhenSilent is "perhaps"`,
		"CABINE_MESSAGES_VERSIONS=pacs.008":     "is no type=version",
		"CABINE_MESSAGES_VERSIONS=pacs.999=1.1": `"pacs.999" is unknown`,
		"CABINE_WATCH_ENQUIRE_MOST=1s":          "EnquireMost is 1s",
		"CABINE_OUTBOX_STUCK_MOST=1s":           "StuckMost is 1s",
		"CABINE_INBOUND_CONCURRENCY=-1":         "Concurrency is -1",
	} {
		require.ErrorContains(t, load(t, environ).Validate(), says, environ)
	}
	cfg := load(t)
	cfg.Core.Key = "short"
	err := cfg.Validate()
	require.ErrorContains(t, err, "has 5 bytes, want at least 32")
	cfg = load(t)
	cfg.Signature.SPICertificates = ""
	require.ErrorContains(t, cfg.Validate(), "signature.spi_certificates")
	cfg = load(t)
	cfg.API.Tokens = ""
	require.ErrorContains(t, cfg.Validate(), "api: tokens")
}

func TestWiringIsComplete(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	id := core.NewIdentity("payments", "test", "r")
	runner := core.NewRunner(cfg.Stop, clock.System(), quiet(), func(int) {})
	require.NoError(t, fx.ValidateApp(core.App(id, cfg, quiet(), runner, wire)))
}

func TestPrintedConfigurationHidesSecrets(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, core.Print(&out, load(t, "CABINE_CORE_PREVIOUS_KEY_ID=k0", "CABINE_CORE_PREVIOUS_KEY="+secret)))
	require.NotContains(t, out.String(), "hunter2")
	require.Contains(t, out.String(), "when_silent: reject")
}
