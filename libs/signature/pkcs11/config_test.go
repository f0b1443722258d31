package pkcs11_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/signature/pkcs11"
)

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := pkcs11.Config{MaxSessions: 1, WaitTimeout: -1}.Validate()
	for _, name := range []string{"Module", "Token", "PIN", "KeyLabel", "MaxSessions", "WaitTimeout"} {
		require.ErrorContains(t, err, name)
	}
	_, err = pkcs11.Open(pkcs11.Config{})
	require.ErrorContains(t, err, "Module")
	require.NoError(t, pkcs11.Config{Module: "m", Token: "t", PIN: "p", KeyLabel: "k"}.WithDefaults().Validate())
}
