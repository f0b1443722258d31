package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Without a file host nothing is asked for; with one its own values are judged.
func TestReconciliationIsConfiguration(t *testing.T) {
	t.Parallel()
	cfg := load(t, "CABINE_RECONCILIATION_MODE=whatever", "CABINE_RECONCILIATION_EVERY=1ms")
	require.NoError(t, cfg.Validate(), "books are not reconciled")
	host := []string{
		"CABINE_RECONCILIATION_FILES_URL=https://arq.pi.rsfn.net.br", "CABINE_RECONCILIATION_CERT_FILE=/c", "CABINE_RECONCILIATION_KEY_FILE=/k",
		"CABINE_RECONCILIATION_CA_FILE=/a", "CABINE_FILES_BUCKET=file:///tmp",
	}
	cfg = load(t, append(host, "CABINE_RECONCILIATION_MODE=active", "CABINE_RECONCILIATION_CHANNEL=csm", "CABINE_RECONCILIATION_EVERY=30m")...)
	require.NoError(t, cfg.Validate())
	r := cfg.reconciliation("v1")
	require.Equal(t, []any{true, pix.CSM, 30 * time.Minute, "v1", "settlement:12345678"}, []any{r.Active, r.Channel, r.Every, r.Version, r.Leadership})
	require.False(t, load(t, host...).reconciliation("v1").Active)
	require.Equal(t, "image:7", load(t, append(host, "CABINE_RECONCILIATION_RELEASE=image:7")...).reconciliation("v1").Version)
	for environ, says := range map[string]string{
		"CABINE_RECONCILIATION_MODE=on":            `reconciliation: mode is "on"`,
		"CABINE_RECONCILIATION_CHANNEL=x":          `reconciliation: channel "x"`,
		"CABINE_RECONCILIATION_EVERY=1ms":          "reconciliation: Every is 1ms",
		"CABINE_RECONCILIATION_FILES_URL=http://x": "reconciliation: files URL is not https",
	} {
		require.ErrorContains(t, load(t, append(host, environ)...).Validate(), says, environ)
	}
	require.ErrorContains(t, load(t, host[:4]...).Validate(), "files_url without files.bucket")
	require.ErrorContains(t, load(t, host[0], host[4]).Validate(), "certificate and key")
}
