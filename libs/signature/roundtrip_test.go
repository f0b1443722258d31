package signature_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

func TestWhatIsSignedVerifies(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 10} {
		signed := sign(t, order(n))
		cert, err := theVerifier(t).Verify([]byte(signed))
		require.NoError(t, err)
		require.Equal(t, theIdentity(t).Certificate, cert)
	}
}

func TestSigningChangesNothingButSgntr(t *testing.T) {
	t.Parallel()
	signed := sign(t, order(1))
	require.Equal(t, order(1), regexp.MustCompile(`<ds:Signature .*</ds:Signature>`).ReplaceAllString(signed, ""))
	require.Equal(t, signed, sign(t, strings.Replace(order(1), "<Sgntr></Sgntr>", "<Sgntr/>", 1)))
	require.NotContains(t, signed, "\n")
}

// TestSignatureByTheRuleWrittenAgain computes the octets with text replacement alone, as they were found on messages
// that the SPI itself had signed, and shares no code with the package.
func TestSignatureByTheRuleWrittenAgain(t *testing.T) {
	t.Parallel()
	signed := sign(t, order(10))
	const ds = ` xmlns:ds="http://www.w3.org/2000/09/xmldsig#"`
	one := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindAllString(signed, -1)
		require.Len(t, found, 1, pattern)
		return found[0]
	}
	namespace := strings.TrimPrefix(one(`<Envelope xmlns="[^"]+"`), "<Envelope")
	keyInfo := strings.Replace(one(`<ds:KeyInfo .*</ds:KeyInfo>`), "<ds:KeyInfo", "<ds:KeyInfo"+ds, 1)
	header := strings.Replace(one(`<AppHdr>.*</AppHdr>`), one(`<ds:Signature .*</ds:Signature>`), "", 1)
	header = strings.Replace(header, "<AppHdr", "<AppHdr"+namespace, 1)
	document := strings.Replace(one(`<Document>.*</Document>`), "<Document", "<Document"+namespace, 1)

	digests := regexp.MustCompile(`<ds:DigestValue>([^<]+)<`).FindAllStringSubmatch(signed, -1)
	require.Len(t, digests, 3)
	for i, octets := range []string{keyInfo, header, document} {
		sum := sha256.Sum256([]byte(octets))
		require.Equal(t, base64.StdEncoding.EncodeToString(sum[:]), digests[i][1], "reference %d", i+1)
	}

	signedInfo := strings.Replace(one(`<ds:SignedInfo>.*</ds:SignedInfo>`), "<ds:SignedInfo", "<ds:SignedInfo"+ds, 1)
	sum := sha256.Sum256([]byte(signedInfo))
	value, err := base64.StdEncoding.DecodeString(
		strings.TrimSuffix(strings.TrimPrefix(one(`<ds:SignatureValue>[^<]+<`), "<ds:SignatureValue>"), "<"))
	require.NoError(t, err)
	require.NoError(t, rsa.VerifyPKCS1v15(&theIdentity(t).Key.PublicKey, crypto.SHA256, sum[:], value))

	require.Contains(t, signed, `<ds:Reference URI="#key-info-id">`)
	require.Contains(t, signed, `<ds:KeyInfo Id="key-info-id">`)
	require.Contains(t, signed, `>CN=AC SIMULADA SPB, OU=CSPB-1, O=ICP-Brasil, C=BR<`)
	require.Contains(t, signed, `>`+theIdentity(t).Certificate.SerialNumber.String()+`<`)
}

func TestSignaturesInOtherSpellingsVerify(t *testing.T) {
	t.Parallel()
	signed := sign(t, order(1))
	value := regexp.MustCompile(`<ds:SignatureValue>[^<]*`).FindString(signed)
	wrapped := string(signaturetest.Wrap([]byte(signed)))
	require.Equal(t, 4, strings.Count(wrapped, "&#13;\n"), "344 characters in lines of 76")
	for name, message := range map[string]string{
		"wrapped as the SPI does":     wrapped,
		"wrapped by carriage returns": strings.ReplaceAll(wrapped, "&#13;\n", "\r\n"),
		"white space around":          strings.Replace(signed, value, value[:19]+"\n\t "+value[19:]+"\n", 1),
		"in lines, also the message":  strings.Replace(signed, "?><", "?>\r\n<", 1) + "\n",
		"between header and document": strings.Replace(signed, "</AppHdr><Document>", "</AppHdr>\n  <Document>", 1),
		"no declaration":              strings.TrimPrefix(signed, `<?xml version="1.0" encoding="UTF-8" standalone="no"?>`),
	} {
		_, err := theVerifier(t).Verify([]byte(message))
		require.NoError(t, err, name)
	}
}
