package icom_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
)

func TestResourceIDRoundTrip(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_999_000, time.UTC)
	id, err := icom.NewResourceID(at, rand.Reader)
	require.NoError(t, err)
	require.Equal(t, at.Truncate(time.Millisecond), id.At)
	text := id.String()
	require.Len(t, text, 32)
	raw, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Equal(t, "PI", string(raw[:2]))
	again, err := icom.ParseResourceID(text)
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func TestResourceIDOfAKnownLayout(t *testing.T) {
	t.Parallel()
	// "PI", 2020-07-10T12:00:00.123Z as 6 bytes, a version 4 UUID.
	raw := append([]byte("PI\x01\x73\x38\xb5\x66\x7b"), bytes.Repeat([]byte{0x11}, 16)...)
	raw[8+6], raw[8+8] = 0x4a, 0x9b
	id, err := icom.ParseResourceID(base64.StdEncoding.EncodeToString(raw))
	require.NoError(t, err)
	require.Equal(t, int64(0x017338b5667b), id.At.UnixMilli())
	require.Equal(t, byte(0x4a), id.UUID[6])
}

func TestResourceIDRefusals(t *testing.T) {
	t.Parallel()
	good, err := icom.NewResourceID(time.UnixMilli(1), bytes.NewReader(make([]byte, 16)))
	require.NoError(t, err)
	text := good.String()
	for _, s := range []string{
		"", text[:31], text + "A", strings.Repeat("=", 32), "!" + text[1:], "AA" + text[2:],
		text[:18] + "AAAA" + text[22:], // no version 4
	} {
		_, err := icom.ParseResourceID(s)
		require.Error(t, err, s)
	}
	_, err = icom.NewResourceID(time.UnixMilli(-1), rand.Reader)
	require.Error(t, err)
	_, err = icom.NewResourceID(time.UnixMilli(1<<48), rand.Reader)
	require.Error(t, err)
	broken := errors.New("no entropy")
	_, err = icom.NewResourceID(time.UnixMilli(1), iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func FuzzParseResourceID(f *testing.F) {
	id, err := icom.NewResourceID(time.UnixMilli(1_594_382_400_123), rand.Reader)
	require.NoError(f, err)
	f.Add(id.String())
	f.Add(strings.Repeat("A", 32))
	f.Fuzz(func(t *testing.T, s string) {
		id, err := icom.ParseResourceID(s)
		if err == nil {
			require.Equal(t, s, id.String())
		}
	})
}
