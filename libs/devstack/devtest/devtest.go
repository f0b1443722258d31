// Package devtest gives tests the real servers of devstack: shared ones that start once per test binary, and private
// ones for a test that stops, empties or overloads its server.
//
// A package that needs servers has one TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithRedis(), devtest.WithPostgres())) }
//
// and its tests ask for what they need:
//
//	dsn := devtest.Postgres(t)    // a fresh, empty database
//	addr := devtest.Redis(t).Addr() // shared: use keys of your own, never flush it
//	own := devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: true})
//
// A package without servers calls devtest.Main(m) for the check of leaked goroutines alone.
package devtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/devstack"
)

// startLimit bounds the start of servers, an installation included.
const startLimit = 10 * time.Minute

// serverLimit bounds what a test asks of a server that is there already.
const serverLimit = 30 * time.Second

// interrupted is the exit code of a process ended by Ctrl-C, as shells have it.
const interrupted = 130

// shared is the stack of this test binary. TestMain and the tests have nothing but the package in common, so this is
// the one variable at package level: set before the first test, not changed until the last has ended.
var shared atomic.Pointer[devstack.Stack]

// Option says what the tests of a package need.
type Option func(*settings)

type settings struct {
	stack devstack.Options
	leaks []goleak.Option
}

// WithRedis starts a shared redis-server, without persistence.
func WithRedis() Option { return func(s *settings) { s.stack.Redis = true } }

// WithPostgres starts a shared PostgreSQL server.
func WithPostgres() Option { return func(s *settings) { s.stack.Postgres = true } }

// WithNATS starts a shared NATS server with JetStream.
func WithNATS() Option { return func(s *settings) { s.stack.NATS = true } }

// WithLeaks passes options to the check of leaked goroutines; each deserves a reason where it is written.
func WithLeaks(o ...goleak.Option) Option {
	return func(s *settings) { s.leaks = append(s.leaks, o...) }
}

// Main runs the tests of a package with the servers it needs, and then fails if goroutines are left. It returns the
// exit code for os.Exit. The servers are stopped and their directory removed also on Ctrl-C; when the process is
// killed or panics, the kernel ends the servers and the next start removes the directory.
func Main(m *testing.M, options ...Option) int {
	s := settings{stack: devstack.Options{Progress: os.Stderr}}
	for _, option := range options {
		option(&s)
	}
	stack, err := start(s.stack)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.Store(stack)
	forget := stopOnSignal(stack)
	code := m.Run()
	forget()
	shared.Store(nil)
	if err := stack.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // a failed test may well leave goroutines: its own message is the one to read
	}
	if err := leaked(s.leaks); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "devtest: goroutines are left after the tests:", err)
		return 1
	}
	return 0
}

// leaked looks for goroutines that stay. Some end only a second after what they belong to was closed: go-redis
// notices it between two attempts to dial a server that is away. Each look takes a part of a second.
func leaked(options []goleak.Option) (err error) {
	for range 8 {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}

func start(o devstack.Options) (*devstack.Stack, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return devstack.Start(ctx, o)
}

// stopOnSignal ends the stack and the process on the first SIGINT or SIGTERM, until the function returned is called.
func stopOnSignal(stack *devstack.Stack) (forget func()) {
	signals := make(chan os.Signal, 1)
	done, ended := make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(ended)
		select {
		case <-signals:
			if err := stack.Stop(); err != nil {
				_, _ = fmt.Fprintln(os.Stderr, err)
			}
			os.Exit(interrupted)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// stackOf returns the stack that Main started.
func stackOf(t testing.TB) *devstack.Stack {
	t.Helper()
	stack := shared.Load()
	if stack == nil {
		t.Fatal("no servers: this package needs func TestMain(m *testing.M) { os.Exit(devtest.Main(m, ...)) }")
	}
	return stack
}

// limited returns a context for one request to a server.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), serverLimit)
	t.Cleanup(cancel)
	return ctx
}

// Redis returns the redis-server that the tests of this package share. Use keys of your own; a test that flushes,
// stops or configures its server takes OwnRedis.
func Redis(t testing.TB) *devstack.Redis {
	t.Helper()
	server := stackOf(t).Redis
	if server == nil {
		t.Fatal("no Redis: pass devtest.WithRedis() to devtest.Main")
	}
	return server
}

// OwnRedis starts a redis-server for this test alone and ends it with the test. Replicas added to it live until the
// end of the test binary.
func OwnRedis(t testing.TB, o devstack.RedisOptions) *devstack.Redis {
	t.Helper()
	server, err := stackOf(t).StartRedis(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, server.Kill()) })
	return server
}

// Postgres creates an empty database for this test on the shared server and returns its connection string. It is
// dropped with the test. Migrations are the caller's.
func Postgres(t testing.TB) (dsn string) {
	t.Helper()
	server := PostgresServer(t)
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, says its documentation
	name := "test_" + hex.EncodeToString(random[:])
	if err := server.CreateDatabase(limited(t), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, server.DropDatabase(limited(t), name)) })
	return server.DSN(name)
}

// PostgresServer returns the server that the tests of this package share, to reach it through a proxy, say. A test
// that stops its server takes OwnPostgres.
func PostgresServer(t testing.TB) *devstack.Postgres {
	t.Helper()
	server := stackOf(t).Postgres
	if server == nil {
		t.Fatal("no PostgreSQL: pass devtest.WithPostgres() to devtest.Main")
	}
	return server
}

// OwnPostgres starts a PostgreSQL server for this test alone and ends it with the test.
func OwnPostgres(t testing.TB) *devstack.Postgres {
	t.Helper()
	return OwnPostgresWith(t, devstack.PostgresOptions{})
}

// OwnPostgresWith is OwnPostgres with options. A standby added to it lives until the end of the test binary.
func OwnPostgresWith(t testing.TB, o devstack.PostgresOptions) *devstack.Postgres {
	t.Helper()
	server, err := stackOf(t).StartPostgres(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, server.Kill()) })
	return server
}

// NATS returns the NATS server that the tests of this package share. Streams are shared with it: a test that declares
// them under fixed names, or stops its server, takes OwnNATS.
func NATS(t testing.TB) *devstack.NATS {
	t.Helper()
	server := stackOf(t).NATS
	if server == nil {
		t.Fatal("no NATS: pass devtest.WithNATS() to devtest.Main")
	}
	return server
}

// OwnNATS starts a NATS server for this test alone and ends it with the test.
func OwnNATS(t testing.TB) *devstack.NATS {
	t.Helper()
	return OwnNATSWith(t, devstack.NATSOptions{})
}

// OwnNATSWith is OwnNATS with options.
func OwnNATSWith(t testing.TB, o devstack.NATSOptions) *devstack.NATS {
	t.Helper()
	server, err := stackOf(t).StartNATS(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, server.Stop()) })
	return server
}

// XMLLint runs xmllint in a package whose TestMain calls Main, and returns what it said.
func XMLLint(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit) // it may have to be installed
	defer cancel()
	return stackOf(t).XMLLint(ctx, args...)
}

// SoftHSM makes a PKCS#11 token in a package whose TestMain calls Main.
func SoftHSM(t testing.TB) *devstack.SoftHSM {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit) // it may have to be installed
	defer cancel()
	token, err := stackOf(t).SoftHSM(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Proxy stands between a client of this test and a server, and is closed with the test.
func Proxy(t testing.TB, target string) *devstack.Proxy {
	t.Helper()
	proxy, err := devstack.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, proxy.Close()) })
	return proxy
}

// SeedVariable is the environment variable that repeats a run of Rand.
const SeedVariable = "CABINE_SEED"

// Rand returns a source of random numbers whose seed is printed when the test fails, and taken from SeedVariable to
// repeat that run.
func Rand(t testing.TB) *mathrand.Rand {
	t.Helper()
	seed := mathrand.Uint64() //nolint:gosec // to be repeated, not to be secret
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d", SeedVariable, seed)
	return mathrand.New(mathrand.NewPCG(seed, seed)) //nolint:gosec // to be repeated, not to be secret
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
