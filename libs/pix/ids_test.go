package pix_test

import (
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

func TestIdentifiersAreParsed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
	e, err := pix.ParseEndToEndID("E9999A004202601312359abcDEF12345")
	require.NoError(t, err)
	require.Equal(t, pix.ISPB("9999A004"), e.ISPB())
	require.Equal(t, at, e.At())
	d, err := pix.ParseReturnID("D12345678202601312359abcDEF12345")
	require.NoError(t, err)
	require.Equal(t, pix.ISPB("12345678"), d.ISPB())
	require.Equal(t, at, d.At())
	m, err := pix.ParseMsgID("M00038166abcdefghijklmnopqrs0123")
	require.NoError(t, err)
	require.Equal(t, pix.SPI, m.ISPB())
}

func TestWrongIdentifiersAreRefused(t *testing.T) {
	t.Parallel()
	const good = "12345678202601312359abcDEF12345"
	for _, rest := range []string{
		"", good[1:], good + "0", "1234567a" + good[8:], // length, ISPB
		"12345678202602302359abcDEF12345", "12345678202613012359abcDEF12345", // 30 February, month 13
		"12345678202601312400abcDEF12345", "12345678202601312360abcDEF12345", // 24:00, 23:60
		"1234567820260131 359abcDEF12345", "12345678+02601312359abcDEF12345", // no digits
		"12345678202601312359abcDEF1234-", "12345678202601312359abcDEF123é", "12345678202601312359abcDEF1234\n",
	} {
		_, err := pix.ParseEndToEndID("E" + rest)
		require.ErrorContains(t, err, "EndToEndId", rest)
		_, err = pix.ParseReturnID("D" + rest)
		require.ErrorContains(t, err, "RtrId", rest)
	}
	for _, other := range []string{"D", "e", "M", "|"} {
		_, err := pix.ParseEndToEndID(other + good)
		require.Error(t, err)
	}
	_, err := pix.ParseReturnID("E" + good)
	require.Error(t, err)
	for _, bad := range []string{
		"", "M", "E00038166abcdefghijklmnopqrs0123", "M0003816aabcdefghijklmnopqrs0123",
		"M00038166abcdefghijklmnopqrs012", "M00038166abcdefghijklmnopqrs01234", "M00038166abcdefghijklmnopqrs012_",
	} {
		_, err := pix.ParseMsgID(bad)
		require.ErrorContains(t, err, "MsgId", bad)
	}
}

func TestWhatWasNotParsedHasNoMinute(t *testing.T) {
	t.Parallel()
	require.Zero(t, pix.EndToEndID("").At())
	require.Zero(t, pix.ReturnID("D").At())
	require.Zero(t, pix.EndToEndID("E12345678202602302359abcDEF12345").At())
}

// New identifiers have their form, the UTC minute of their making, and are never the same.
func TestNewIdentifiersAreParsedAndDiffer(t *testing.T) {
	t.Parallel()
	const ispb pix.ISPB = "12345678"
	at := time.Date(2026, 1, 31, 21, 59, 58, 999, time.FixedZone("BRT", -3*60*60))
	minute := time.Date(2026, 2, 1, 0, 59, 0, 0, time.UTC)
	seen := make(map[string]bool)
	for range 1000 {
		e, err := pix.NewEndToEndID(ispb, at, rand.Reader)
		require.NoError(t, err)
		parsed, err := pix.ParseEndToEndID(string(e))
		require.NoError(t, err)
		require.Equal(t, e, parsed)
		require.Equal(t, ispb, e.ISPB())
		require.Equal(t, minute, e.At())

		d, err := pix.NewReturnID(ispb, at, rand.Reader)
		require.NoError(t, err)
		_, err = pix.ParseReturnID(string(d))
		require.NoError(t, err)
		require.Equal(t, minute, d.At())

		m, err := pix.NewMsgID(ispb, rand.Reader)
		require.NoError(t, err)
		_, err = pix.ParseMsgID(string(m))
		require.NoError(t, err)
		require.Equal(t, ispb, m.ISPB())

		for _, id := range []string{string(e), string(d), string(m)} {
			require.False(t, seen[id], id)
			seen[id] = true
		}
	}
}

// Each of the 62 characters is as likely as the others: bytes that would favour some are thrown away.
func TestIdentifiersAreEvenlySpread(t *testing.T) {
	t.Parallel()
	counts := make(map[rune]int)
	source := mathrand.NewChaCha8([32]byte{1})
	for range 20_000 {
		m, err := pix.NewMsgID(pix.SPI, source)
		require.NoError(t, err)
		for _, c := range m[9:] {
			counts[c]++
		}
	}
	require.Len(t, counts, 62)
	most, least := 0, 1<<30
	for _, n := range counts {
		most, least = max(most, n), min(least, n)
	}
	require.Less(t, float64(most)/float64(least), 1.2, "%v", counts)
}

func TestAFailingSourceIsAnError(t *testing.T) {
	t.Parallel()
	broken := iotest.ErrReader(errors.New("no entropy"))
	_, err := pix.NewEndToEndID("12345678", time.Now(), broken)
	require.ErrorContains(t, err, "no entropy")
	_, err = pix.NewReturnID("12345678", time.Now(), broken)
	require.ErrorContains(t, err, "no entropy")
	_, err = pix.NewMsgID("12345678", broken)
	require.ErrorContains(t, err, "no entropy")
}

func TestISPB(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"00038166", "9999A004", "ABCDEFGH"} {
		ispb, err := pix.ParseISPB(good)
		require.NoError(t, err)
		require.Equal(t, pix.ISPB(good), ispb)
	}
	for _, bad := range []string{"", "1234567", "123456789", "1234567a", "1234567-", "1234567\n", "123456é"} {
		_, err := pix.ParseISPB(bad)
		require.Error(t, err, bad)
	}
}

func TestChannel(t *testing.T) {
	t.Parallel()
	require.Equal(t, []pix.Channel{pix.CPM, pix.CSM}, pix.Channels())
	for _, c := range pix.Channels() {
		got, err := pix.ParseChannel(string(c))
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	for _, bad := range []string{"", "CPM", "cpn"} {
		_, err := pix.ParseChannel(bad)
		require.Error(t, err)
	}
}

// FuzzIdentifiers: what is accepted keeps the SPI's own patterns (pacs.008.spi.1.16), and its parts are what they say.
func FuzzIdentifiers(f *testing.F) {
	for _, s := range []string{
		"E9999A004202601312359abcDEF12345", "D12345678202601312359abcDEF12345", "M00038166abcdefghijklmnopqrs0123",
		"", "E" + strings.Repeat("0", 31), "E12345678202602302359abcDEF12345", "E1234567820260131235éabcDEF1234",
	} {
		f.Add(s)
	}
	dated := regexp.MustCompile(`^[ED][0-9A-Z]{8}[0-9]{4}[0-1][0-9][0-3][0-9][0-2][0-9][0-5][0-9][a-zA-Z0-9]{11}$`)
	message := regexp.MustCompile(`^M[0-9A-Z]{8}[a-zA-Z0-9]{23}$`)
	f.Fuzz(func(t *testing.T, s string) {
		if e, err := pix.ParseEndToEndID(s); err == nil {
			require.Regexp(t, dated, s)
			require.Equal(t, s, string(e))
			require.Equal(t, s[9:21], e.At().Format("200601021504"))
			require.Equal(t, s[1:9], string(e.ISPB()))
		}
		if d, err := pix.ParseReturnID(s); err == nil {
			require.Regexp(t, dated, s)
			require.Equal(t, s[9:21], d.At().Format("200601021504"))
		}
		_, err := pix.ParseMsgID(s)
		require.Equal(t, message.MatchString(s), err == nil)
	})
}
