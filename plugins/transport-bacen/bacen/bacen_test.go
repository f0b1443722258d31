package bacen_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/plugins/transport-bacen/bacen"
)

const ispb = pix.ISPB("12345678")

// configure returns the configuration of a transport to the bank, for one participant.
func configure(t *testing.T, bank *icomtest.Bank) bacen.Config {
	t.Helper()
	files, err := bank.PKI().WriteClient(t.TempDir(), ispb)
	require.NoError(t, err)
	cfg := bacen.Config{
		Channels:     map[pix.Channel]bacen.Channel{},
		Participants: map[pix.ISPB]bacen.Identity{ispb: {Cert: files.Cert, Key: files.Key}},
		CA:           files.CA,
	}
	for _, ch := range pix.Channels() {
		cfg.Channels[ch] = bacen.Channel{URL: bank.URL(ch), Gzip: ch == pix.CSM}
	}
	return cfg
}

func open(t *testing.T, cfg bacen.Config) *bacen.Transport {
	t.Helper()
	tr, err := bacen.New(cfg, clock.System(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func permit(n int, d time.Duration) transport.Permit {
	return transport.Permit{
		Slot:     transport.SlotID{Channel: pix.CPM, ISPB: ispb, Slot: n},
		Grant:    "grant",
		NotAfter: clock.System().Now().Deadline(d),
	}
}

func TestReadsSendsAndCloses(t *testing.T) {
	t.Parallel()
	bank := icomtest.Start(t, icomtest.Config{Hold: 50 * time.Millisecond})
	tr := open(t, configure(t, bank))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, tr.Ready(ctx, pix.CPM, ispb))

	ids, err := bank.EnqueueExamples(pix.CPM, ispb, 12)
	require.NoError(t, err)
	var got []string
	cursor := ""
	for len(got) < 12 {
		r, err := tr.Pull(ctx, transport.PullRequest{Permit: permit(1, time.Second), Cursor: cursor, Timeout: 5 * time.Second})
		require.NoError(t, err)
		require.True(t, r.Exchange.Complete)
		require.NotZero(t, r.Exchange.FirstByte)
		for _, m := range r.Messages {
			got = append(got, m.ResourceID)
		}
		cursor = r.Cursor
	}
	require.Equal(t, ids, got)
	_, err = tr.CloseStream(ctx, transport.CloseRequest{Permit: permit(1, time.Second), Cursor: cursor, Timeout: 5 * time.Second})
	require.NoError(t, err)

	s, err := tr.Send(ctx, transport.SendRequest{
		Permit: permit(1, time.Second), Messages: [][]byte{[]byte("<a/>"), []byte("<b/>")}, Timeout: 5 * time.Second,
	})
	require.NoError(t, err)
	require.Len(t, s.ResourceIDs, 2)
	require.Len(t, bank.Requests(pix.CPM, ispb), 4)
}
