package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

// The test binary is also the plugin and the host that is killed: roleEnv says which.
const (
	roleEnv    = "CABINE_TEST_ROLE"
	rolePlugin = "plugin"
	roleHost   = "host"
	roleMute   = "mute"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case rolePlugin:
		log := plugin.Logger(slog.LevelInfo)
		log.Warn("a line of the plugin", "answer", 42, "text", "ção")
		fmt.Fprintln(os.Stderr, "no JSON: \x07")
		fmt.Fprintln(os.Stderr, `{"msg":true,"level":5,"@message":1}`)
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<20))
		log.Debug("a line below the level")
		plugin.Serve(newStub(), log)
	case roleHost:
		hostToBeKilled()
	case roleMute:
		select {}
	default:
		goleak.VerifyTestMain(m)
	}
}

// hostToBeKilled runs a host, prints its plugin's pid and waits for the end.
func hostToBeKilled() {
	log := slog.New(slog.DiscardHandler)
	h, err := plugin.New(plugin.HostConfig{Path: os.Args[0], Env: []string{roleEnv + "=" + rolePlugin}},
		clock.System(), log, prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	go func() {
		if err := h.Await(context.Background()); err != nil {
			panic(err)
		}
		c, err := h.Capabilities(context.Background())
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Version)
	}()
	_ = h.Run(context.Background())
}

// stub is a transport that does what the cursor of a Pull says. Its version is its process's pid.
type stub struct {
	mu     sync.Mutex
	aborts map[transport.SlotID]context.CancelFunc
}

func newStub() *stub { return &stub{aborts: make(map[transport.SlotID]context.CancelFunc)} }

func (s *stub) Capabilities(context.Context) (transport.Capabilities, error) {
	return transport.Capabilities{
		Name: "stub", Version: fmt.Sprint(os.Getpid()), Channels: pix.Channels(), Pull: true, Send: true, Streams: true,
		UserTimeout: 1500 * time.Millisecond,
	}, nil
}

func (s *stub) Ready(_ context.Context, channel pix.Channel, _ pix.ISPB) error {
	if channel == pix.CSM {
		return &transport.Error{Kind: transport.NotSent, Reason: "the certificate has expired"}
	}
	if channel == "env" {
		return errors.New(strings.Join(os.Environ(), " "))
	}
	return nil
}

func now() clock.Instant { return clock.System().Now().Boot }

func (s *stub) Pull(ctx context.Context, in transport.PullRequest) (transport.PullResult, error) {
	done := transport.Exchange{FirstByte: now(), Complete: true}
	r := transport.PullResult{Exchange: done, Cursor: "/next", Messages: []transport.Message{{ResourceID: "id", Body: []byte("body")}}}
	switch in.Cursor {
	case "deadline":
		r.Cursor = fmt.Sprint(int64(in.Permit.NotAfter.Boot)) + "/" + fmt.Sprint(in.Permit.NotAfter.Wall.UnixNano())
	case "hang":
		return transport.PullResult{}, s.hang(ctx, in.Permit.Slot)
	case "deaf":
		select {}
	case "exit":
		os.Exit(7)
	case "panic":
		panic("stub")
	case "throttled":
		return transport.PullResult{}, &transport.Error{
			Kind: transport.Throttled, Exchange: done, Status: 429, ProblemType: "urn:x", Title: "devagar",
			RetryAfter: 3 * time.Second, Reason: "bucket\nempty",
		}
	case "untyped":
		return transport.PullResult{}, errors.New("something else")
	case "future":
		r.Exchange.FirstByte = now().Add(time.Hour)
	case "past":
		r.Exchange.FirstByte = now().Add(-time.Hour)
	case "incomplete":
		r.Exchange.Complete = false
	case "too-many":
		r.Messages = make([]transport.Message, transport.MaxMessages+1)
	case "too-large":
		r.Messages[0].Body = make([]byte, transport.MaxMessageBytes+1)
	case "bad-cursor":
		r.Cursor = "/next\r\nX-Header: smuggled"
	case "bad-id":
		r.Messages[0].ResourceID = "\xff\xfe"
	case "fault":
		r.Messages = append(r.Messages, transport.Message{ResourceID: "bad", Fault: "empty\x00\xff " + strings.Repeat("x", 1000)})
	case "full":
		r.Messages = nil
		for range transport.MaxMessages {
			r.Messages = append(r.Messages, transport.Message{Body: make([]byte, transport.MaxMessageBytes)})
		}
	}
	return r, nil
}

// hang waits for Disconnect or the end of the call and says when it had written.
func (s *stub) hang(ctx context.Context, slot transport.SlotID) error {
	x := transport.Exchange{FirstByte: now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.aborts[slot] = cancel
	s.mu.Unlock()
	<-ctx.Done()
	return &transport.Error{Kind: transport.OutcomeUnknown, Exchange: x, Reason: "aborted"}
}

func (s *stub) Send(_ context.Context, in transport.SendRequest) (transport.SendResult, error) {
	r := transport.SendResult{Exchange: transport.Exchange{FirstByte: now(), Complete: true}}
	for i := range in.Messages {
		r.ResourceIDs = append(r.ResourceIDs, fmt.Sprint(i))
	}
	return r, nil
}

func (s *stub) CloseStream(context.Context, transport.CloseRequest) (transport.CloseResult, error) {
	return transport.CloseResult{Exchange: transport.Exchange{FirstByte: now(), Complete: true}}, nil
}

func (s *stub) Disconnect(_ context.Context, slot transport.SlotID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.aborts[slot]; ok {
		cancel()
	}
	return nil
}
