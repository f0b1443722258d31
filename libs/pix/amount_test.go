package pix_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

func TestAmounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pix.Amount{
		"0.00": 0, "0.01": 1, "0.10": 10, "1.00": 100, "12.34": 1234, "1000000.00": 100_000_000, "9999999999999999.99": pix.MaxAmount,
	} {
		got, err := pix.ParseAmount(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
	zeros, err := pix.ParseAmount("000000000000000000000012.34")
	require.NoError(t, err)
	require.Equal(t, pix.Amount(1234), zeros)
}

func TestWrongAmountsAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", ".", "1", "1.", "1.2", "1.234", ".12", "-1.00", "+1.00", "1,00", "1.000,00", "1 000.00", " 1.00", "1.00 ", "1e2.00",
		"0x1.00", "NaN", "Inf", "1.0a", "1..00", "1.00.00", "１.００", "10000000000000000.00", strings.Repeat("9", 400) + ".00",
	} {
		_, err := pix.ParseAmount(bad)
		require.Error(t, err, bad)
		require.Less(t, len(err.Error()), 120)
	}
}

func TestNegativeAmountsAreWritten(t *testing.T) {
	t.Parallel()
	require.Equal(t, "-0.01", pix.Amount(-1).String())
	require.Equal(t, "-12.34", pix.Amount(-1234).String())
	require.Equal(t, "-92233720368547758.07", pix.Amount(-math.MaxInt64).String())
}

// FuzzAmount: what is accepted is written back as it was, leading zeros aside.
func FuzzAmount(f *testing.F) {
	for _, s := range []string{"12.34", "0.00", "9999999999999999.99", "-1.00", "1e3", "00.10", "1.2"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[0-9]+\.[0-9]{2}$`)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pix.ParseAmount(s)
		if err != nil {
			require.Zero(t, a)
			return
		}
		require.Regexp(t, form, s)
		require.True(t, a >= 0 && a <= pix.MaxAmount)
		trimmed := strings.TrimLeft(s, "0")
		if trimmed[0] == '.' {
			trimmed = "0" + trimmed
		}
		require.Equal(t, trimmed, a.String())
	})
}
