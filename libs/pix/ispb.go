package pix

import "fmt"

// ISPB identifies a participant: eight characters of 0-9 and A-Z (letters occur,
// as in the SPI's virtual participants; XSD type of pacs.008.spi.1.16).
type ISPB string

// SPI is the ISPB under which the SPI itself sends and receives.
const SPI ISPB = "00038166"

// ParseISPB checks the form of s. It does not know whether the participant exists.
func ParseISPB(s string) (ISPB, error) {
	if len(s) != 8 {
		return "", fmt.Errorf("ISPB has %d characters, want 8", len(s))
	}
	for i := range len(s) {
		if !upperAlnum(s[i]) {
			return "", fmt.Errorf("ISPB %q: only 0-9 and A-Z are allowed", s)
		}
	}
	return ISPB(s), nil
}

func upperAlnum(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' }
