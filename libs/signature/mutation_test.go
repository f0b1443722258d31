package signature_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// content is what a parser sees of a message beside the signature itself and white space between its parts.
func content(message []byte) (string, error) {
	var out strings.Builder
	depth, hidden := 0, 0
	for decoder := xml.NewDecoder(bytes.NewReader(message)); ; {
		t, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.StartElement:
			depth++
			if t.Name.Local == "Signature" {
				hidden = depth
			}
			if hidden == 0 {
				fmt.Fprintf(&out, "<%v %v", t.Name, t.Attr)
			}
		case xml.EndElement:
			if hidden == 0 {
				fmt.Fprintf(&out, "</%v", t.Name)
			}
			if depth == hidden {
				hidden = 0
			}
			depth--
		case xml.CharData:
			if hidden == 0 && depth > 1 {
				out.Write(t)
			}
		}
	}
}

// TestWhatVerifiesIsWhatWasSigned changes a signed message in every byte: whatever still verifies must read as before.
func TestWhatVerifiesIsWhatWasSigned(t *testing.T) {
	t.Parallel()
	random, verifier := devtest.Rand(t), theVerifier(t)
	signed := signaturetest.Wrap([]byte(sign(t, order(1))))
	want, err := content(signed)
	require.NoError(t, err)
	require.Contains(t, want, "1234.56")
	accepted := 0
	try := func(message []byte) {
		if _, err := verifier.Verify(message); err != nil {
			return
		}
		got, err := content(message)
		require.NoError(t, err)
		require.Equal(t, want, got)
		accepted++
	}
	const letters = "<>/&;\"'= \t\r\n!?:#-[]axZ09\x00\x7f\xc3\xff"
	for at := range signed {
		letter := letters[random.IntN(len(letters))]
		changed := bytes.Clone(signed)
		changed[at] = letter
		try(changed)
		switch random.IntN(4) {
		case 0:
			changed[at] = signed[at] ^ byte(1<<random.IntN(8))
			try(changed)
		case 1:
			try(append(append(bytes.Clone(signed[:at]), letter), signed[at:]...))
		case 2:
			try(append(bytes.Clone(signed[:at]), signed[at+1:]...))
		case 3:
			try(signed[:at])
		}
	}
	t.Logf("%d of %d changes left the message as it was", accepted, 2*len(signed))
	require.Less(t, accepted, len(signed)/10, "white space in base64 and in the declaration is all that may change")
}

// FuzzVerify looks for a panic, and for a message that verifies and says something else.
func FuzzVerify(f *testing.F) {
	signed, verifier := sign(f, order(1)), theVerifier(f)
	want, err := content([]byte(signed))
	require.NoError(f, err)
	f.Add([]byte(signed))
	f.Add(signaturetest.Wrap([]byte(signed)))
	f.Add([]byte(closeEmpty(signed)))
	f.Fuzz(func(t *testing.T, message []byte) {
		cert, err := verifier.Verify(message)
		if err != nil {
			require.Nil(t, cert)
			return
		}
		got, err := content(message)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
