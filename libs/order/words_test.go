package order

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
)

// Each of BACEN's words stands for one code of the message, and comes back from it.
func TestWordsAreThoseOfTheMessage(t *testing.T) {
	t.Parallel()
	for _, word := range AccountTypes() {
		require.Equal(t, word, AccountWord(accountType(word)))
	}
	for _, word := range Natures() {
		require.Equal(t, word, NatureWord(natureCode(word)))
	}
	require.Equal(t, iso20022.ReturnAsked, natureCode("ORIGINAL"))
}
