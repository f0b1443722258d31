package e2e_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// Goal: a replica whose certificate the bank cannot accept takes no slot and asks nothing,
// and readiness names what is wrong: expired, of another ISPB, or of an authority that the bank does not know.
//
// Method: such a replica beside a good one. All it may do is a handshake. A certificate
// that passes the handshake and is answered 403 is tested with the service.
func TestReplicaWithAWrongCertificateTakesNoSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.consume()
	w.traffic(10)
	stranger, err := icomtest.NewPKI()
	require.NoError(t, err)
	now := time.Now()
	wrong := map[string]struct {
		files icomtest.Files
		says  string
	}{
		"expired":  {clientFiles(t, w.bank.PKI(), ispb, now.Add(-48*time.Hour), now.Add(-time.Hour)), "client certificate of 12345678 expired at " + now.Add(-time.Hour).UTC().Format("2006-01-02")},
		"another":  {clientFiles(t, w.bank.PKI(), "87654321", now.Add(-time.Hour), now.Add(time.Hour)), "87654321"},
		"stranger": {clientFiles(t, stranger, ispb, now.Add(-time.Hour), now.Add(time.Hour)), "unknown certificate authority"},
	}
	for name, tt := range wrong {
		r := w.start(name, settings{files: &tt.files})
		w.eventually(name+" to log the reason: "+tt.says, func() bool {
			return slices.ContainsFunc(r.logs(time.Time{}, "not ready to poll"), func(l line) bool {
				return strings.Contains(l.text("error"), tt.says)
			})
		})
		status, body := r.get("/health/ready")
		t.Logf("%s: %s", name, body)
		require.Equal(t, 503, status)
		require.Contains(t, body, tt.says, "the reason, not only the fact")
	}
	good := w.start("good", settings{})
	w.eventually("the good replica to poll every slot", func() bool { return len(good.held()) == slots })
	for _, q := range w.bank.Requests(pix.CPM, ispb) {
		require.Contains(t, q.Remote, "good ", "nobody else asked for anything")
	}
	require.Empty(t, w.bank.Requests(pix.CPM, "87654321"))
	w.booksAgree()
	require.Len(t, good.held(), slots, "nobody waited for a share with a certificate that is of no use")
	require.Zero(t, good.stop())
}

func clientFiles(t *testing.T, pki *icomtest.PKI, of pix.ISPB, from, to time.Time) icomtest.Files {
	t.Helper()
	c, err := pki.ClientValid(of, from, to)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return icomtest.Files{Cert: write("cert.pem", "CERTIFICATE", c.Certificate[0]), Key: write("key.pem", "PRIVATE KEY", key)}
}
