package bus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/bus"
)

func TestObligationsAreReadStrictly(t *testing.T) {
	t.Parallel()
	const subject = "pix.settlement.obligation"
	o, err := bus.Delivery{Subject: subject, Payload: []byte(`{"id":"E1"}`)}.Obligation()
	require.NoError(t, err)
	require.Equal(t, bus.Obligation{ID: "E1"}, o)
	for _, bad := range []bus.Delivery{
		{Subject: "pix.settlement.cycle", Payload: []byte(`{"id":"E1"}`)},
		{Subject: subject, Payload: []byte(`{}`)},
		{Subject: subject, Payload: []byte(`{"id":1}`)},
		{Subject: subject},
	} {
		_, err := bad.Obligation()
		require.Error(t, err)
	}
}
