package signature_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// free is a key whose signature costs nothing: what remains is this package.
type free struct {
	crypto.Signer
	value []byte
}

func (f free) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return f.value, nil }

// BenchmarkRSA is what a signature and its check cost without a message around them.
func BenchmarkRSA(b *testing.B) {
	key, digest := theIdentity(b).Key, sha256.Sum256(nil)
	value, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	require.NoError(b, err)
	b.Run("sign", func(b *testing.B) {
		for b.Loop() {
			_, err = key.Sign(rand.Reader, digest[:], crypto.SHA256)
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			err = rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, digest[:], value)
		}
	})
	require.NoError(b, err)
}

// BenchmarkSign signs a pacs.008, with RSA and without.
func BenchmarkSign(b *testing.B) {
	identity := theIdentity(b)
	without, err := signature.FromCertificate(free{identity.Key, make([]byte, 256)}, identity.Certificate)
	require.NoError(b, err)
	for name, signer := range map[string]*signature.Signer{"all": theSigner(b), "without-rsa": without} {
		for _, n := range []int{1, 10} {
			message := []byte(order(n))
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(message)))
				for b.Loop() {
					_, err = signer.Sign(message)
				}
				require.NoError(b, err)
			})
		}
	}
}

// BenchmarkVerify verifies a pacs.008: as we sign it, as the SPI does (wrapped, empty elements closed in their start
// tags), and with the whole message in need of canonicalisation.
func BenchmarkVerify(b *testing.B) {
	verifier := theVerifier(b)
	for _, n := range []int{1, 10} {
		ours := sign(b, order(n))
		for name, message := range map[string]string{
			"ours":    ours,
			"spi":     closeEmpty(string(signaturetest.Wrap([]byte(ours)))),
			"library": closeEmpty(sign(b, strings.ReplaceAll(order(n), "<Ustrd>", "<Ustrd>&#62;"))),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(message)))
				var err error
				for b.Loop() {
					_, err = verifier.Verify([]byte(message))
				}
				require.NoError(b, err)
			})
		}
	}
}

// closeEmpty closes empty elements of the signature in their start tags: SignedInfo needs canonicalisation then.
func closeEmpty(signed string) string {
	for _, name := range []string{"CanonicalizationMethod", "SignatureMethod", "Transform", "DigestMethod"} {
		signed = strings.ReplaceAll(signed, "></ds:"+name+">", "/>")
	}
	return signed
}
