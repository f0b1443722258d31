package schedule_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/schedule"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }

const leadership = "settlement:12345678"

func TestWhatIsOldIsEndedUnderTheNewestTermAlone(t *testing.T) {
	t.Parallel()
	dsn := devtest.Postgres(t)
	require.NoError(t, store.Migrate(t.Context(), dsn))
	db, err := store.Open(t.Context(), store.Config{URL: dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	payments, outbox, keys, inbox := store.NewPayments(db), store.NewOutbox(db), store.NewIdempotency(db), store.NewInbox(db)
	ids := []string{"E12345678202612010000" + strings.Repeat("1", 11), "E12345678202612010000" + strings.Repeat("2", 11)}
	require.NoError(t, db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for _, id := range ids {
			if _, err := payments.Insert(ctx, tx, store.Payment{
				ID: id, Kind: pix.Payment, Direction: pix.Out, State: pix.Created, Amount: 1, Channel: pix.CPM, Counterparty: "87654321",
				Document: json.RawMessage("{}"), AcceptedAt: time.Now(),
			}, "api"); err != nil {
				return err
			}
			if _, err := outbox.Add(ctx, tx, []store.Operation{{PaymentID: id, MsgType: "pacs.008", Channel: pix.CPM, Body: []byte("{}")}}); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, key := range []string{"old", "new"} {
		_, err := keys.Begin(t.Context(), key, [32]byte{})
		require.NoError(t, err)
	}
	name, _, _ := strings.Cut(dsn[strings.LastIndex(dsn, "/")+1:], "?")
	require.NoError(t, devtest.PostgresServer(t).Exec(t.Context(), name, `
		UPDATE outbox SET created_at = now() - interval '1 hour' WHERE payment_id LIKE '%1111';
		UPDATE idempotency_keys SET created_at = now() - interval '3 days' WHERE key = 'old';
		INSERT INTO dead_letters (buried_at, source, message_id, msg_type, reason, payload)
			SELECT now() - n * interval '200 days', 's', 'm' || n, '', 'r', 'x' FROM generate_series(3, 1, -1) AS n`))

	terms := store.NewTerms(db)
	old, err := terms.Mint(t.Context(), leadership, "a")
	require.NoError(t, err)
	newest, err := terms.Mint(t.Context(), leadership, "b")
	require.NoError(t, err)
	k, err := schedule.New(schedule.Config{Leadership: leadership, Every: 10 * time.Millisecond}, schedule.Deps{
		Terms: terms, Inbox: inbox, Keys: keys, Outbox: outbox, Clock: clock.System(),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	left := func() int {
		letters, err := inbox.DeadLetters(t.Context(), 0, 10)
		require.NoError(t, err)
		return len(letters)
	}
	require.ErrorIs(t, k.Run(t.Context(), old), store.ErrStaleTerm)
	require.Equal(t, 3, left())

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx, newest) }()
	require.Eventually(t, func() bool { return left() == 1 }, 60*time.Second, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	given, err := payments.Get(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, []any{pix.Rejected, "expired"}, []any{given.State, given.Reason})
	kept, err := payments.Get(t.Context(), ids[1])
	require.NoError(t, err)
	require.Equal(t, pix.Created, kept.State)
	begun, err := keys.Begin(t.Context(), "old", [32]byte{1})
	require.NoError(t, err)
	require.Equal(t, store.KeyFresh, begun.State)
	begun, err = keys.Begin(t.Context(), "new", [32]byte{1})
	require.NoError(t, err)
	require.Equal(t, store.KeyMismatch, begun.State)
}

func TestConfigIsJudged(t *testing.T) {
	t.Parallel()
	_, err := schedule.New(schedule.Config{Every: 1, Keys: time.Hour, DeadLetters: time.Hour, Orders: time.Second}, schedule.Deps{})
	for _, says := range []string{"leadership is empty", "Every is 1ns", "Keys is 1h", "DeadLetters is 1h", "Orders is 1s"} {
		require.ErrorContains(t, err, says)
	}
}
