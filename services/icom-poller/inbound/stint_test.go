package inbound

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/drain"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
)

func TestAckOnlyAfterTheBatchIsStored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			switch n {
			case 1:
				return brought("c1", "m1", "m2")
			case 2:
				return brought("c2", "m3")
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 2, cursor "c1"`, `pull 1 "c1"`, `stored 1, cursor "c2"`, `pull 1 "c2"`,
		}, b.story.all())
		require.Equal(b.t, []string{"m1", "m2", "m3"}, b.carrier.all())
		require.EqualValues(b.t, 3, b.metric("cabine_inbound_messages_total", "stored"))
	})
}

func TestStoreAwayStopsThePollsAndResumes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if p.cursor == "" {
				if n == 1 {
					b.store.set(errors.New("connection refused"))
				}
				return brought("c1", "m1")
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(4 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`}, b.story.all(), "no ack while it is not stored, the slot is kept a while")
		b.after(time.Minute)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, "release 1"}, b.story.all(), "given back without a DELETE, and nothing taken")
		require.ErrorContains(b.t, b.poller.Ready(b.t.Context()), "connection refused")

		b.store.set(nil)
		b.after(6 * time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, "release 1",
			"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `pull 1 "c1"`,
		}, b.story.all()[:7])
		require.NoError(b.t, b.poller.Ready(b.t.Context()))
	})
}

func TestShortStoreOutageKeepsTheSlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				b.store.set(errors.New("restarting"))
				time.AfterFunc(2*time.Second, func() { b.store.set(nil) })
				return brought("c1", "m1")
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(5 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `pull 1 "c1"`}, b.story.all())
		b.after(7 * time.Second) // the publisher's own back-off
		require.Equal(b.t, []string{"m1"}, b.carrier.all())
	})
}

func TestEmptyAnswerThatCameEarlyWaitsForTheFloor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n <= 2 {
				return transport.PullResult{Cursor: "c"}, nil
			}
			return hold(ctx, "c")
		}
		b.start()
		b.after(12 * time.Second)
		got := gaps(b.bank.all())
		require.Equal(b.t, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second, 5 * time.Second}, got)
	})
}

func gaps(pulls []pull) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(pulls); i++ {
		out = append(out, pulls[i].at.Sub(pulls[i-1].at))
	}
	return out
}

func TestGoneStreamIsOpenedAnew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			switch n {
			case 1:
				return brought("c1", "m1")
			case 2:
				return transport.PullResult{}, complete(transport.Gone)
			}
			return hold(ctx, "d1")
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `pull 1 "c1"`, "cursor reset 1", `pull 1 ""`,
		}, b.story.all())
	})
}

func TestThrottledKeepsTheSlotAndWaitsAsLongAsTheBankSays(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				e := complete(transport.Throttled)
				e.Status, e.RetryAfter = 429, 7*time.Second
				return transport.PullResult{}, e
			}
			return hold(ctx, "c")
		}
		b.start()
		b.after(8 * time.Second)
		pulls := b.bank.all()
		require.Equal(b.t, []time.Duration{7 * time.Second}, gaps(pulls))
		require.Equal(b.t, pulls[0].grant, pulls[1].grant)
		require.EqualValues(b.t, 1, b.metric("cabine_inbound_throttled_total"))
		require.Contains(b.t, b.log.String(), "throttled by the bank")
	})
}

func TestErrorsBackOffAndPassTheSlotOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(context.Context, int, pull) (transport.PullResult, error) {
			return transport.PullResult{}, complete(transport.Unavailable)
		}
		b.start()
		b.after(10 * time.Minute)
		pulls := b.bank.all()
		got := gaps(pulls)
		require.Greater(b.t, len(got), 10)
		want := 200 * time.Millisecond
		for i, g := range got {
			require.GreaterOrEqual(b.t, g, want/2, "pause %d", i)
			require.LessOrEqual(b.t, g, want, "pause %d", i)
			want = min(2*want, 30*time.Second)
		}
		require.NotEqual(b.t, pulls[0].grant, pulls[3].grant, "after three errors somebody else may try")
		require.Equal(b.t, pulls[0].grant, pulls[2].grant)
		require.NotContains(b.t, b.story.all(), `delete 1 ""`)
	})
}

func TestUnknownOutcomeCoolsTheSlotAndTakesAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.leases = newLeases(b.clk, b.story, 2)
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				return transport.PullResult{}, &transport.Error{Kind: transport.OutcomeUnknown, Exchange: transport.Exchange{FirstByte: b.clk.Now().Boot}}
			}
			return hold(ctx, "c")
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, "cool down 1", "grant 2", `pull 2 ""`}, b.story.all())
		require.Equal(b.t, []time.Duration{0}, gaps(b.bank.all()), "at once")
	})
}

func TestStaleTermLeavesTheStreamAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				b.store.mu.Lock()
				b.store.terms[1]++ // another owner opened the session
				b.store.mu.Unlock()
				return brought("c1", "m1")
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, "release 1", "grant 1", `pull 1 ""`}, b.story.all())
		require.Empty(b.t, b.store.rows)
	})
}

func TestMessageThatCannotBeReadGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				res, _ := brought("c1", "m1", "m2", "m3")
				res.Messages[1].Body = []byte("<Envelope><AppHdr>")
				res.Messages[2].ResourceID = ""
				return res, nil
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		dead := b.store.graves()
		require.Len(b.t, dead, 2)
		require.Equal(b.t, "m2", dead[0].MessageID)
		require.Contains(b.t, dead[0].Reason, "not closed")
		require.True(b.t, strings.HasPrefix(dead[1].MessageID, "sha256:"))
		require.Equal(b.t, "no PI-ResourceId", dead[1].Reason)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `pull 1 "c1"`}, b.story.all(), "the cursor goes on")
		require.EqualValues(b.t, 2, b.metric("cabine_inbound_dead_letters_total"))
		require.Contains(b.t, b.log.String(), "message goes to the dead letters")
	})
}

// A part that its framing shows to be at fault is put aside with what there is of it, the others are stored, the
// cursor goes on; nothing is asked for again.
func TestAPartAtFaultGoesToTheDeadLettersAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				res, _ := brought("c1", "m1", "m2", "m3", "m4")
				res.Messages[1].Fault = "charset is not utf-8"
				res.Messages[2].Fault, res.Messages[2].Body = "message is empty", nil
				res.Messages[3].Fault, res.Messages[3].ResourceID = "content type is not application/xml", ""
				return res, nil
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `pull 1 "c1"`}, b.story.all())
		require.Equal(b.t, []string{"m1"}, b.carrier.all())
		dead := b.store.graves()
		require.Len(b.t, dead, 3)
		require.Equal(b.t, "m2", dead[0].MessageID)
		require.Equal(b.t, "charset is not utf-8", dead[0].Reason)
		require.Equal(b.t, envelope("pacs.008.spi.1.16"), dead[0].Payload)
		require.Equal(b.t, "m3", dead[1].MessageID)
		require.Equal(b.t, "message is empty", dead[1].Reason)
		require.Equal(b.t, "no PI-ResourceId; content type is not application/xml", dead[2].Reason)
		require.EqualValues(b.t, 3, b.metric("cabine_inbound_dead_letters_total", "malformed"))
		require.Zero(b.t, b.metric("cabine_inbound_malformed_answers_total"))
	})
}

func TestOtherContentUnderATakenIdentifierIsTold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			res, _ := brought("c1", "m1")
			switch n {
			case 1:
				return res, nil
			case 2:
				res.Messages[0].Body = envelope("pacs.002.spi.1.17")
				return res, nil
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		require.Equal(b.t, []string{"m1"}, b.carrier.all())
		require.EqualValues(b.t, 1, b.metric("cabine_inbound_dead_letters_total", "conflict"))
		require.Contains(b.t, b.log.String(), "taken by other content")
	})
}

func TestUnreadableAnswerIsAskedForAgainThenTheStreamIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			switch {
			case n == 1:
				return brought("c1", "m1")
			case p.cursor == "c1":
				return transport.PullResult{}, complete(transport.Malformed)
			}
			return hold(ctx, "d1")
		}
		b.start()
		b.after(3 * time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`,
			`pull 1 "c1"`, `pull 1 "c1"`, `pull 1 "c1"`, "cursor reset 1", `pull 1 ""`,
		}, b.story.all())
		require.EqualValues(b.t, 3, b.metric("cabine_inbound_malformed_answers_total"))
		require.EqualValues(b.t, 1, b.metric("cabine_inbound_streams_abandoned_total"))
	})
}

func TestUnreadableAnswerIsNeverAcknowledgedByADelete(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(_ context.Context, n int, _ pull) (transport.PullResult, error) {
			if n == 1 {
				return brought("c1", "m1")
			}
			return transport.PullResult{}, complete(transport.Malformed)
		}
		b.start()
		b.after(50 * time.Millisecond)
		b.poller.StopTaking()
		b.after(time.Second)
		require.NotContains(b.t, b.story.all(), `delete 1 "c1"`)
		require.Contains(b.t, b.story.all(), "release 1")
	})
}

// A DELETE acknowledges. What the last owner was brought on a cursor that is only resumed may be stored nowhere, and
// what a read brought that failed is not stored either; so the stream is deleted only if the last read of this stint
// was answered and stored.
func TestAStreamIsDeletedOnlyAfterAReadThatIsStored(t *testing.T) {
	t.Parallel()
	empty := func(p pull) (transport.PullResult, error) { return transport.PullResult{Cursor: p.cursor}, nil }
	stored := func(pull) (transport.PullResult, error) { return brought("c1", "m1") }
	fails := func(kind transport.Kind) func(pull) (transport.PullResult, error) {
		return func(pull) (transport.PullResult, error) {
			if kind == transport.NotSent {
				return transport.PullResult{}, &transport.Error{Kind: kind}
			}
			return transport.PullResult{}, complete(kind)
		}
	}
	type reads []func(pull) (transport.PullResult, error)
	for name, tt := range map[string]struct {
		reads   reads
		deletes bool
	}{
		"resumed and never read":           {reads{}, false},
		"resumed, 503":                     {reads{fails(transport.Unavailable)}, false},
		"resumed, 429":                     {reads{fails(transport.Throttled)}, false},
		"resumed, 403":                     {reads{fails(transport.Rejected)}, false},
		"resumed, unreadable":              {reads{fails(transport.Malformed)}, false},
		"resumed, never sent":              {reads{fails(transport.NotSent)}, false},
		"resumed, 204":                     {reads{empty}, true},
		"resumed, stored":                  {reads{stored}, true},
		"resumed, stored, 503":             {reads{stored, fails(transport.Unavailable)}, false},
		"resumed, stored, unreadable":      {reads{stored, fails(transport.Malformed)}, false},
		"resumed, stored, never sent":      {reads{stored, fails(transport.NotSent)}, true},
		"resumed, 503, stored":             {reads{fails(transport.Unavailable), stored}, true},
		"resumed, stored, 503, never sent": {reads{stored, fails(transport.Unavailable), fails(transport.NotSent)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bench) {
				b.store.curs[1] = "c1"
				b.cfg.FailuresPerStint = 100
				b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
					if n == len(tt.reads) { // the last: the stint is told to stop while it is under way
						b.poller.StopTaking()
						_, _ = hold(ctx, "")
					}
					return tt.reads[n-1](p)
				}
				if len(tt.reads) == 0 {
					b.leases.away(true) // no read may start
				}
				b.start()
				b.after(time.Minute)
				b.poller.StopTaking()
				b.after(time.Minute)
				require.Len(b.t, b.bank.all(), len(tt.reads))
				require.Equal(b.t, tt.deletes, slices.Contains(b.story.all(), `delete 1 "c1"`), b.story.all())
				require.Contains(b.t, b.story.all(), "release 1")
			})
		})
	}
}

func TestStopEndsPollsStoresDeletesAndReleases(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if n == 1 {
				_, _ = hold(ctx, "")
				return brought("c1", "m1")
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		b.poller.StopTaking()
		b.after(3 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`}, b.story.all(), "the poll in flight is let end")
		b.after(2 * time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 1, cursor "c1"`, `delete 1 "c1"`, "session closed 1", "release 1",
		}, b.story.all())
		require.NoError(b.t, b.poller.Quiet(b.t.Context()))
		require.NoError(b.t, b.poller.Flush(b.t.Context()))
		require.Equal(b.t, []string{"m1"}, b.carrier.all())
		require.Empty(b.t, b.poller.Held())
		for _, line := range []string{"slot granted", "first poll", "stream opened", "stream closed", "slot given", "how=released"} {
			require.Contains(b.t, b.log.String(), line)
		}
	})
}

func TestAbortCutsWhatIsInFlightAndCoolsDown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.start()
		b.after(time.Second)
		b.poller.StopTaking()
		b.after(time.Second)
		b.poller.Abort()
		b.after(0)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, "cool down 1"}, b.story.all())
		require.NoError(b.t, b.poller.Quiet(b.t.Context()))
	})
}

func TestYieldGivesTheSlotAfterOnePoll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, _ int, p pull) (transport.PullResult, error) { return hold(ctx, "c") }
		b.start()
		b.after(0)
		close(b.leases.holder(1).yield)
		b.after(4 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`}, b.story.all())
		b.after(time.Second)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 0, cursor "c"`, `delete 1 "c"`, "session closed 1", "release 1",
		}, b.story.all()[:6])
	})
}

func TestLostLeaseMakesNoFurtherRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, _ int, p pull) (transport.PullResult, error) { return hold(ctx, "c") }
		b.start()
		b.after(time.Second)
		b.leases.holder(1).lose()
		b.after(10 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, `stored 0, cursor "c"`}, b.story.all(), "what arrived is stored; no DELETE, no release")
		require.Contains(b.t, b.log.String(), "how=lost")
	})
}

func TestNoSlotIsTakenBeforeTheTransportIsReady(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.ready = errors.New("certificate expired")
		b.start()
		b.after(time.Minute)
		require.Empty(b.t, b.story.all())
		require.ErrorContains(b.t, b.poller.Ready(b.t.Context()), "channel cpm: transport: certificate expired")
		b.bank.setReady(nil)
		b.after(6 * time.Second)
		require.NoError(b.t, b.poller.Ready(b.t.Context()))
		require.Equal(b.t, "grant 1", b.story.all()[0])
	})
}

// F3: the bank hold contains u, so a transport that may deliver for longer is not used.
func TestNoSlotIsTakenWithALooseTransport(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.loose = time.Millisecond
		b.start()
		b.after(time.Minute)
		require.Empty(b.t, b.story.all())
		require.ErrorContains(b.t, b.poller.Ready(b.t.Context()), "may deliver for 1.501s")
	})
}

func TestReadyDoesNotNeedASlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.leases = newLeases(b.clk, b.story, 0)
		b.start()
		b.after(time.Minute)
		require.NoError(b.t, b.poller.Ready(b.t.Context()))
		require.Empty(b.t, b.story.all())
	})
}

func TestAlignedPollsMeetTheirTicks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		cycle, stagger := 4167*time.Millisecond, 694*time.Millisecond
		b.slots(6)
		b.cfg.Schedule = Aligned{Cycle: cycle, Stagger: stagger, Floor: 100 * time.Millisecond}
		b.bank.answer = func(context.Context, int, pull) (transport.PullResult, error) {
			return transport.PullResult{Cursor: "c"}, nil
		}
		b.start()
		b.after(30 * time.Second)
		pulls := b.bank.all()
		require.Greater(b.t, len(pulls), 6*6)
		for _, p := range pulls {
			off := (time.Duration(p.at.UnixNano()) - time.Duration(p.slot-1)*stagger) % cycle
			if p.at.Sub(b.clk.base) > 100*time.Millisecond {
				require.Zero(b.t, off, "slot %d at %v", p.slot, p.at)
			}
		}
	})
}

func TestLeaderPlacementPollsOnlyWhileLeading(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.OnlyLeading = true
		b.bank.answer = func(ctx context.Context, _ int, _ pull) (transport.PullResult, error) { return hold(ctx, "c") }
		b.start()
		b.after(time.Minute)
		require.Empty(b.t, b.story.all())

		leading, depose := context.WithCancel(b.t.Context())
		returned := make(chan error, 1)
		go func() { returned <- b.poller.Lead(leading, 1) }()
		b.after(time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`}, b.story.all())
		depose()
		b.after(0)
		require.NoError(b.t, <-returned, "at once, with a poll in flight")
		b.after(time.Minute)
		require.Equal(b.t, []string{
			"grant 1", `pull 1 ""`, `stored 0, cursor "c"`, `delete 1 "c"`, "session closed 1", "release 1",
		}, b.story.all())

		leading, depose = context.WithCancel(b.t.Context())
		go func() { returned <- b.poller.Lead(leading, 2) }()
		b.after(time.Second)
		require.Equal(b.t, "grant 1", b.story.all()[6], "elected again")
		depose()
		require.NoError(b.t, <-returned)
	})
}

func TestWatchdogCriesWhenNobodyPolls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.leases = newLeases(b.clk, b.story, 0)
		b.start()
		b.after(119 * time.Second)
		require.NotContains(b.t, b.log.String(), "no replica polls this channel")
		b.after(7 * time.Second)
		require.Contains(b.t, b.log.String(), "no replica polls this channel")
		require.Contains(b.t, b.log.String(), "critical=true")
		require.GreaterOrEqual(b.t, b.metric("cabine_inbound_idle_seconds", "cpm"), 120.0)
	})
}

func TestPermitsAreCountedFromRedis(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.deps.Holders = map[pix.Channel]func(context.Context) ([]lease.Holder, error){pix.CPM: func(context.Context) ([]lease.Holder, error) {
			return []lease.Holder{{Slot: 1, Class: lease.Poll, Replica: "a"}, {Slot: 2, Class: lease.Send, Replica: "b"}, {Slot: 3, Cooling: true}, {Slot: 4}}, nil
		}}
		b.start()
		b.after(time.Second)
		require.EqualValues(b.t, 1, b.metric("cabine_permits_in_use", "poll"))
		require.EqualValues(b.t, 1, b.metric("cabine_permits_in_use", "send"))
		require.EqualValues(b.t, 1, b.metric("cabine_permits_cooling"))
	})
}

func TestHeldListsTheStints(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.slots(2)
		b.bank.answer = func(ctx context.Context, n int, p pull) (transport.PullResult, error) {
			if p.cursor == "" {
				return brought("c", []string{"a", "b"}[p.slot-1])
			}
			return hold(ctx, p.cursor)
		}
		b.start()
		b.after(time.Second)
		held := b.poller.Held()
		require.Len(b.t, held, 2)
		require.Equal(b.t, []int{1, 2}, []int{held[0].Slot, held[1].Slot})
		require.EqualValues(b.t, 1, held[0].Messages)
		require.EqualValues(b.t, 2, held[0].Polls)
		require.EqualValues(b.t, 1, held[0].Term)
		require.NotNil(b.t, held[0].LastPoll)
		slices.Sort(b.carrier.sent)
		require.Equal(b.t, []string{"a", "b"}, b.carrier.all())
	})
}

func TestStopPhasesGiveEverythingBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cfg.EndPolls = 2 * time.Second // shorter than the bank's hold
		b.bank.answer = func(ctx context.Context, _ int, _ pull) (transport.PullResult, error) { return hold(ctx, "c") }
		b.start()
		b.after(time.Second)
		d := drain.New(slog.New(slog.DiscardHandler), b.clk, b.poller.StopPhases()...).WithExit(func(int) { b.t.Error("watchdog") })
		require.ErrorIs(b.t, d.Run(b.t.Context()), drain.ErrOverrun)
		d.Disarm()
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, "cool down 1"}, b.story.all())
	})
}

func TestSlotWaitsForARenewalThatIsLate(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.bank.answer = func(ctx context.Context, _ int, _ pull) (transport.PullResult, error) { return hold(ctx, "c") }
		b.start()
		b.after(time.Second)
		b.leases.away(true)
		b.after(8 * time.Second)
		require.Equal(b.t, []string{"grant 1", `pull 1 ""`, `stored 0, cursor "c"`}, b.story.all(), "no request, and the slot is kept")
		require.Equal(b.t, 1, strings.Count(b.log.String(), "no poll until the lease is renewed"))
		require.Zero(b.t, b.metric("cabine_slot_stale_starts_blocked_total"))
		b.leases.away(false)
		b.after(time.Second)
		require.Equal(b.t, `pull 1 "c"`, b.story.all()[3])
		require.NoError(b.t, b.poller.Ready(b.t.Context()))
	})
}
