//go:build cgo

package pkcs11_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/pkcs11"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

const (
	keyLabel = "assinatura"
	message  = `<Envelope xmlns="https://www.bcb.gov.br/pi/pibr.001/1.3"><AppHdr><Sgntr></Sgntr></AppHdr>` +
		`<Document><EchoReq></EchoReq></Document></Envelope>`
)

// What the child of TestKeyInAToken is told.
const (
	moduleVariable      = "PKCS11_TEST_MODULE"
	tokenVariable       = "PKCS11_TEST_TOKEN"
	pinVariable         = "PKCS11_TEST_PIN"
	certificateVariable = "PKCS11_TEST_CERTIFICATE"
)

// TestKeyInAToken puts a key into a token and runs TestTokenChild in an environment in which the token's library finds
// the token and what it is linked to: it reads that environment when the process starts.
func TestKeyInAToken(t *testing.T) {
	t.Parallel()
	token := devtest.SoftHSM(t)
	now := clock.System().Now().Wall
	identity, err := signaturetest.New("AC SIMULADA SPB", now.Add(-time.Hour), now.Add(time.Hour))
	require.NoError(t, err)
	key, certificate, err := identity.Write(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, token.Import(t.Context(), key, keyLabel))
	require.NoError(t, os.Remove(key), "from here on the key is in the token alone")

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTokenChild$", "-test.v")
	child.Env = append(append(os.Environ(), token.Env()...), moduleVariable+"="+token.Module, tokenVariable+"="+token.Label,
		pinVariable+"="+token.PIN, certificateVariable+"="+certificate)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "SIGNED IN THE TOKEN")
}

// TestTokenChild is no test of its own.
func TestTokenChild(t *testing.T) {
	t.Parallel()
	cfg := pkcs11.Config{
		Module: os.Getenv(moduleVariable), Token: os.Getenv(tokenVariable), PIN: os.Getenv(pinVariable), KeyLabel: keyLabel,
	}
	if cfg.Module == "" {
		return // run as a test: nothing to do
	}
	certs, err := signature.LoadCertificates(os.Getenv(certificateVariable))
	require.NoError(t, err)
	verifier, err := signature.NewVerifier(clock.System(), certs...)
	require.NoError(t, err)

	for name, wrong := range map[string]func(*pkcs11.Config){
		"PIN":    func(c *pkcs11.Config) { c.PIN = "0000" },
		"key":    func(c *pkcs11.Config) { c.KeyLabel = "outra" },
		"token":  func(c *pkcs11.Config) { c.Token = "outro" },
		"module": func(c *pkcs11.Config) { c.Module = "/nowhere.so" },
	} {
		other := cfg
		wrong(&other)
		_, err := pkcs11.Open(other)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), cfg.PIN)
	}

	key, err := pkcs11.Open(cfg)
	require.NoError(t, err)
	signer, err := signature.FromCertificate(key, certs[0])
	require.NoError(t, err)
	var signers sync.WaitGroup
	for range 2 * 16 { // more than there are sessions
		signers.Go(func() {
			signed, err := signer.Sign([]byte(message))
			if err == nil {
				_, err = verifier.Verify(signed)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	signers.Wait()
	require.NoError(t, key.Close())
	_, err = signer.Sign([]byte(message))
	require.Error(t, err)
	t.Log("SIGNED IN THE TOKEN")
}
