package signature_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/signature"
)

func TestKeysAndCertificatesFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keyPath, certPath, err := theIdentity(t).Write(dir)
	require.NoError(t, err)
	info, err := os.Stat(keyPath)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	pkcs1 := filepath.Join(dir, "pkcs1.pem")
	require.NoError(t, os.WriteFile(pkcs1, pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(theIdentity(t).Key),
	}), 0o600))
	certs, err := signature.LoadCertificates(certPath)
	require.NoError(t, err)
	require.Equal(t, []*x509.Certificate{theIdentity(t).Certificate}, certs)
	for _, path := range []string{keyPath, pkcs1} {
		key, err := signature.LoadKey(path)
		require.NoError(t, err)
		signer, err := signature.FromCertificate(key, certs[0])
		require.NoError(t, err)
		signed, err := signer.Sign([]byte(order(1)))
		require.NoError(t, err)
		require.Equal(t, sign(t, order(1)), string(signed), "RSA with PKCS#1 v1.5 always gives the same")
	}

	_, err = signature.LoadKey(certPath)
	require.ErrorContains(t, err, "no private key")
	_, err = signature.LoadCertificates(keyPath)
	require.ErrorContains(t, err, "no certificate")
	_, err = signature.LoadKey(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, kind := range []string{"PRIVATE KEY", "RSA PRIVATE KEY", "CERTIFICATE"} {
		broken := filepath.Join(dir, "broken.pem")
		require.NoError(t, os.WriteFile(broken, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("secret")}), 0o600))
		_, errKey := signature.LoadKey(broken)
		_, errCerts := signature.LoadCertificates(broken)
		require.Error(t, errKey)
		require.Error(t, errCerts)
		require.NotContains(t, errKey.Error(), "secret")
		require.NoError(t, os.WriteFile(broken, []byte("secret"), 0o600))
		_, err = signature.LoadKey(broken)
		require.ErrorContains(t, err, "not a PEM file")
	}
}

func TestShortKeysAndOtherKeysAreRefused(t *testing.T) {
	t.Parallel()
	// Go makes no such keys any more; the modulus alone is what is looked at.
	short := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2046), E: 65537}}
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, err = signature.NewSigner(short, "CN=A", big.NewInt(1))
	require.ErrorContains(t, err, "RSA key of 2047 bits, at least 2048 are needed")
	_, err = signature.NewSigner(elliptical, "CN=A", big.NewInt(1))
	require.ErrorContains(t, err, "RSA")
	_, err = signature.NewSigner(nil, "CN=A", big.NewInt(1))
	require.Error(t, err)
	key := theIdentity(t).Key
	for _, issuer := range []string{"", "CN=\x00", "CN=\xff"} {
		_, err = signature.NewSigner(key, issuer, big.NewInt(1))
		require.Error(t, err, issuer)
	}
	for _, serial := range []*big.Int{nil, big.NewInt(-1)} {
		_, err = signature.NewSigner(key, "CN=A", serial)
		require.Error(t, err)
	}

	weak := *theIdentity(t).Certificate
	weak.PublicKey = short.Public()
	_, err = signature.NewVerifier(clock.NewFake(), &weak)
	require.ErrorContains(t, err, "2047 bits")
	_, err = signature.FromCertificate(key, &weak)
	require.ErrorContains(t, err, "another key")
	weak.PublicKey = elliptical.Public()
	_, err = signature.NewVerifier(clock.NewFake(), &weak)
	require.ErrorContains(t, err, "RSA")
}

func TestIssuerIsWrittenAsTheSPIWritesIt(t *testing.T) {
	t.Parallel()
	part := func(id int, value string) pkix.RelativeDistinguishedNameSET {
		return pkix.RelativeDistinguishedNameSET{{Type: []int{2, 5, 4, id}, Value: value}}
	}
	for want, sequence := range map[string]pkix.RDNSequence{
		"CN=AC VALID SPB, OU=CSPB-6, O=ICP-Brasil, C=BR": {
			part(6, "BR"), part(10, "ICP-Brasil"), part(11, "CSPB-6"), part(3, "AC VALID SPB"),
		},
		"CN=AC, OU=Segunda, OU=Primeira, O=ICP-Brasil, C=BR": {
			part(6, "BR"), part(10, "ICP-Brasil"), part(11, "Primeira"), part(11, "Segunda"), part(3, "AC"),
		},
		`CN=Certificação \+ Cia\, S.A. & \<Filhos\>, C=BR`: {part(6, "BR"), part(3, "Certificação + Cia, S.A. & <Filhos>")},
	} {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(7)},
			&x509.Certificate{RawSubject: marshalled(t, sequence)}, theIdentity(t).Key.Public(), theIdentity(t).Key)
		require.NoError(t, err)
		cert, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		issuer, err := signature.IssuerName(cert)
		require.NoError(t, err)
		require.Equal(t, want, issuer)
	}
}

func marshalled(t *testing.T, name pkix.RDNSequence) []byte {
	t.Helper()
	der, err := asn1.Marshal(name)
	require.NoError(t, err)
	return der
}

// failing is a key that cannot be reached.
type failing struct{ crypto.Signer }

var errAway = errors.New("token was pulled")

func (failing) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return nil, errAway }

func TestSignRefusesWhatCouldNotBeVerified(t *testing.T) {
	t.Parallel()
	for reason, message := range map[signature.Reason]string{
		signature.AlreadySigned: sign(t, order(1)),
		signature.Malformed:     strings.Replace(order(1), "<GrpHdr>", "<!-- --><GrpHdr>", 1),
		signature.BadStructure:  strings.Replace(order(1), "<GrpHdr>", "<Document></Document><GrpHdr>", 1),
		signature.BadProfile:    strings.Replace(sign(t, order(1)), "rsa-sha256", "rsa-sha1", 1),
	} {
		_, err := theSigner(t).Sign([]byte(message))
		var refused *signature.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, reason, refused.Reason)
	}
	signer, err := signature.FromCertificate(failing{theIdentity(t).Key}, theIdentity(t).Certificate)
	require.NoError(t, err)
	_, err = signer.Sign([]byte(order(1)))
	require.ErrorIs(t, err, errAway)
}

func TestErrorsQuoteNothingOfTheMessage(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		strings.Replace(sign(t, order(1)), "<Document>", "<Document12345678909>", 1),
		strings.Replace(sign(t, order(1)), "<ds:KeyInfo ", `<ds:KeyInfo12345678909 `, 1),
		strings.Replace(sign(t, order(1)), "<ds:X509SerialNumber>", "<ds:X509SerialNumber>12345678909", 1),
		strings.Replace(sign(t, order(1)), "12345678909", "12345678909&12345678909;", 1),
	} {
		_, err := theVerifier(t).Verify([]byte(message))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "12345678909")
	}
}
