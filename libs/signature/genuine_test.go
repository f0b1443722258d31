package signature

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// genuine is a message that a bank signed in 2020, where it lies beside a checkout, if it does.
const genuine = "../../../shared/data/spi/signed/pibr.001.signed.xml"

// The certificate of that bank is not at hand, so its digests are all that can be checked. It has lines in its
// signature and elements closed in their start tags.
func TestDigestsOfAGenuineMessage(t *testing.T) {
	t.Parallel()
	message, err := os.ReadFile(genuine)
	if os.IsNotExist(err) {
		t.Logf("%s is not there: nothing to check", genuine)
		return
	}
	require.NoError(t, err)
	e, refused := read(message)
	require.Nil(t, refused)
	require.Nil(t, e.checkDigests())
	require.Equal(t, "CN=AC VALID SPB, OU=CSPB-6, O=ICP-Brasil, C=BR", e.signature.issuer)
	require.Equal(t, "3378581693176843090", e.signature.serial.String())
	require.Len(t, e.signature.value, 256)

	e, refused = read(bytes.Replace(message, []byte("BRBTESTE"), []byte("BRBTESTF"), 1))
	require.Nil(t, refused)
	refused = e.checkDigests()
	require.NotNil(t, refused)
	require.Equal(t, WrongDigest, refused.Reason)
}
