package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/transport"
)

type alwaysReady struct{}

func (alwaysReady) Capabilities(context.Context) (transport.Capabilities, error) {
	return transport.Capabilities{}, nil
}
func (alwaysReady) Ready(context.Context, pix.Channel, pix.ISPB) error { return nil }

func TestNothingIsSignedOutOfTheCertificatesTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		from, to time.Duration
		good     bool
	}{
		"in force": {-time.Hour, time.Hour, true}, "expired": {-2 * time.Hour, -time.Hour, false}, "not yet": {time.Hour, 2 * time.Hour, false},
	} {
		identity, err := signaturetest.New("12345678", now.Add(tt.from), now.Add(tt.to))
		require.NoError(t, err)
		s, err := signerOf(identity.Key, identity.Certificate, clock.System())
		require.NoError(t, err)
		message, err := iso20022.DefaultVersions().Build(iso20022.Header{
			From: "12345678", To: pix.SPI, MsgID: "M1234567800000000000000000000001", Created: now.UTC().Truncate(time.Millisecond),
		}, &iso20022.Pibr001{Data: "x"})
		require.NoError(t, err)
		_, signed := s.Sign(message)
		ready := readiness{alwaysReady{}, s}.Ready(t.Context(), pix.CPM, "12345678")
		if tt.good {
			require.NoError(t, signed, name)
			require.NoError(t, ready, name)
			continue
		}
		require.ErrorContains(t, signed, "is in force from", name)
		require.ErrorContains(t, ready, "is in force from", name)
	}
}
