package pix

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// EndToEndID identifies a payment for everybody: E, the ISPB of the payer's participant,
// the UTC minute of its making (yyyyMMddHHmm) and eleven letters or digits (pacs.008.spi.1.16).
type EndToEndID string

// ReturnID identifies a return: D, and otherwise as EndToEndID, with the ISPB of the participant that returns.
type ReturnID string

// MsgID identifies a message to the SPI: M, the sender's ISPB and 23 letters or digits.
type MsgID string

// The lengths of the identifiers and of their own part at the end.
const (
	idLength     = 32
	minuteLength = 12
	minuteFormat = "200601021504"
)

const alphanumerics = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ParseEndToEndID checks the form of s, the date in it included. How old it may be is the caller's rule.
func ParseEndToEndID(s string) (EndToEndID, error) {
	if err := checkDated('E', s); err != nil {
		return "", fmt.Errorf("EndToEndId: %w", err)
	}
	return EndToEndID(s), nil
}

// NewEndToEndID makes an identifier for a payment of ispb at an instant. random must not fail or repeat itself: crypto/rand.Reader.
func NewEndToEndID(ispb ISPB, at time.Time, random io.Reader) (EndToEndID, error) {
	own, err := randomText(random, idLength-1-8-minuteLength)
	if err != nil {
		return "", err
	}
	return EndToEndID("E" + string(ispb) + at.UTC().Format(minuteFormat) + own), nil
}

// ISPB is the payer's participant.
func (e EndToEndID) ISPB() ISPB { return ISPB(e[1:9]) }

// At is the minute in the identifier, UTC.
func (e EndToEndID) At() time.Time { return minute(string(e)) }

// ParseReturnID checks the form of s as ParseEndToEndID does.
func ParseReturnID(s string) (ReturnID, error) {
	if err := checkDated('D', s); err != nil {
		return "", fmt.Errorf("RtrId: %w", err)
	}
	return ReturnID(s), nil
}

// NewReturnID makes an identifier for a return by ispb at an instant; random as in NewEndToEndID.
func NewReturnID(ispb ISPB, at time.Time, random io.Reader) (ReturnID, error) {
	own, err := randomText(random, idLength-1-8-minuteLength)
	if err != nil {
		return "", err
	}
	return ReturnID("D" + string(ispb) + at.UTC().Format(minuteFormat) + own), nil
}

// ISPB is the participant that returns.
func (r ReturnID) ISPB() ISPB { return ISPB(r[1:9]) }

// At is the minute in the identifier, UTC.
func (r ReturnID) At() time.Time { return minute(string(r)) }

// ParseMsgID checks the form of s.
func ParseMsgID(s string) (MsgID, error) {
	if len(s) != idLength || s[0] != 'M' {
		return "", fmt.Errorf("MsgId has %d characters, want M and %d more", len(s), idLength-1)
	}
	if _, err := ParseISPB(s[1:9]); err != nil {
		return "", fmt.Errorf("MsgId: %w", err)
	}
	if !alphanumeric(s[9:]) {
		return "", fmt.Errorf("MsgId: only letters and digits are allowed")
	}
	return MsgID(s), nil
}

// NewMsgID makes an identifier for a message of ispb; random as in NewEndToEndID.
func NewMsgID(ispb ISPB, random io.Reader) (MsgID, error) {
	own, err := randomText(random, idLength-9)
	if err != nil {
		return "", err
	}
	return MsgID("M" + string(ispb) + own), nil
}

// ISPB is the sender.
func (m MsgID) ISPB() ISPB { return ISPB(m[1:9]) }

func checkDated(kind byte, s string) error {
	if len(s) != idLength || s[0] != kind {
		return fmt.Errorf("has %d characters, want %c and %d more", len(s), kind, idLength-1)
	}
	if _, err := ParseISPB(s[1:9]); err != nil {
		return err
	}
	if _, err := time.Parse(minuteFormat, s[9:9+minuteLength]); err != nil {
		return fmt.Errorf("%q is no minute (yyyyMMddHHmm)", s[9:9+minuteLength])
	}
	if !alphanumeric(s[9+minuteLength:]) {
		return fmt.Errorf("only letters and digits are allowed")
	}
	return nil
}

// minute reads the minute of an identifier; zero for one that was not parsed.
func minute(s string) time.Time {
	if len(s) != idLength {
		return time.Time{}
	}
	at, err := time.Parse(minuteFormat, s[9:9+minuteLength])
	if err != nil {
		return time.Time{}
	}
	return at
}

func alphanumeric(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(alphanumerics, r) }) < 0
}

// randomText returns n letters and digits, each as likely as the others.
func randomText(random io.Reader, n int) (string, error) {
	const whole = 256 / len(alphanumerics) * len(alphanumerics)
	text, buf := make([]byte, 0, n), make([]byte, n+n/4)
	for len(text) < n {
		if _, err := io.ReadFull(random, buf); err != nil {
			return "", fmt.Errorf("random identifier: %w", err)
		}
		for _, b := range buf {
			if int(b) < whole && len(text) < n {
				text = append(text, alphanumerics[int(b)%len(alphanumerics)])
			}
		}
	}
	return string(text), nil
}
