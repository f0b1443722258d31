package pix

import (
	"fmt"
	"strconv"
	"strings"
)

// Amount is money in centavos of a real. It is never a float.
type Amount int64

// MaxAmount is the most that a message can carry: 18 digits, two of them centavos (pacs.008.spi.1.16).
const MaxAmount Amount = 999_999_999_999_999_999

// ParseAmount reads "12.34": digits without sign or separators of thousands, a point and exactly two decimals, as the
// Pix API and the SPI's messages write it.
func ParseAmount(s string) (Amount, error) {
	reais, centavos, point := strings.Cut(s, ".")
	if !point || len(centavos) != 2 || !digits(reais) || !digits(centavos) {
		return 0, fmt.Errorf("amount %.24q: want digits, a point and two decimals", s)
	}
	if reais = strings.TrimLeft(reais, "0"); len(reais) > 16 {
		return 0, fmt.Errorf("amount has %d digits, want at most 18", len(reais)+2)
	}
	n, err := strconv.ParseInt(reais+centavos, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("amount: %w", err)
	}
	return Amount(n), nil
}

// String writes "12.34".
func (a Amount) String() string {
	sign, n := "", int64(a)
	if n < 0 {
		sign, n = "-", -n
	}
	return fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
