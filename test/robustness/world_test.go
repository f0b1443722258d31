package robustness_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// The times of this day. The bank counts a request for at most its hold and the longest delay of the weather, or that
// delay of a send; B lies a second above both, because the bank too must share the machine.
const (
	bankHold       = time.Second
	pullDelay      = time.Second
	sendDelay      = 2600 * time.Millisecond // beyond the receive timeout
	receiveTimeout = 2300 * time.Millisecond
	settleWithin   = 20 * time.Second
	spiHasNone     = "ED05" // spitest's word for an entry that it does not have
	opening        = pix.Amount(1_000_000_000_00)
	apiToken       = "robustness-token-0123456789-0123456789"
)

// simulatedBank is its program.
const simulatedBank = "bacen-sim"

// role is a service that replicas run.
type role string

const (
	polling role = "icom-poller"
	paying  role = "payments"
	sending role = "outbound-sender"
)

func roles() []role { return []role{polling, paying, sending} }

// replicas of each service, per participant.
const replicas = 2

// world is the servers, the bank and both participants.
type world struct {
	t     *testing.T
	seed  uint64
	logs  string
	dir   string
	redis *devstack.Redis
	pg    *devstack.Postgres
	bank  struct {
		CPM        string                      `json:"cpm"`
		CSM        string                      `json:"csm"`
		Control    string                      `json:"control"`
		Clients    map[pix.ISPB]icomtest.Files `json:"clients"`
		SPI        string                      `json:"spi"`
		Signatures map[pix.ISPB]struct {
			Key         string `json:"key"`
			Certificate string `json:"certificate"`
		} `json:"signatures"`
	}
	participants []*participant
	http         http.Client
}

// participant is one institution.
type participant struct {
	w    *world
	ispb pix.ISPB
	nats *devstack.NATS
	dsn  string
	core string // URL of the core's decisions

	db       *store.DB
	payments *store.Payments
	inbox    *store.Inbox
	outbound *store.Outbound

	mu      sync.Mutex
	coreSim *process
	running map[role][]*process
	started int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, seed: seed, logs: t.ArtifactDir(), dir: t.TempDir(), http: http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	t.Cleanup(w.http.CloseIdleConnections)
	w.pg, w.redis = devtest.OwnPostgres(t), devtest.OwnRedis(t, devstack.RedisOptions{AppendOnly: true})
	for _, ispb := range []pix.ISPB{"12345678", "87654321"} {
		w.participants = append(w.participants, &participant{w: w, ispb: ispb, nats: devtest.OwnNATS(t), running: map[role][]*process{}})
	}
	w.startBank()
	for _, p := range w.participants {
		p.open()
	}
	for _, p := range w.participants {
		for _, r := range roles() {
			for range replicas {
				require.NoError(t, p.enter(t.Context(), r))
			}
		}
	}
	return w
}

func (w *world) startBank() {
	w.t.Helper()
	args := []string{
		"--pki-dir", filepath.Join(w.dir, "pki"), "--hold", bankHold.String(), "--redeliver-after", "5s", "--stream-expiry", "20s",
		"--seed", strconv.FormatUint(w.seed, 10), "--settle-within", settleWithin.String(), "--scheduled-within", settleWithin.String(),
		"--spi-linger", "150ms",
	}
	for _, p := range w.participants {
		args = append(args, "--ispb", string(p.ispb), "--participant", string(p.ispb)+"="+opening.String())
	}
	bank, err := w.startWithReadyLine(simulatedBank, args, &w.bank)
	require.NoError(w.t, err)
	w.t.Cleanup(bank.kill)
}

// startWithReadyLine runs a simulator and reads the line with which it says where it is.
func (w *world) startWithReadyLine(name string, args []string, ready any) (*process, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // read to its line
	p, err := w.start(name, program(name), args, in)
	_ = in.Close()
	if err != nil {
		return nil, err
	}
	if err = out.SetReadDeadline(time.Now().Add(time.Minute)); err == nil {
		err = json.NewDecoder(io.LimitReader(out, 1<<20)).Decode(ready)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// control asks the bank's control port; the answer goes to into unless that is nil.
func (w *world) control(ctx context.Context, method, path string, query url.Values, body, into any) error {
	u := url.URL{Scheme: "http", Host: w.bank.Control, Path: path, RawQuery: query.Encode()}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return w.ask(ctx, method, u.String(), text, into)
}

func (w *world) ask(ctx context.Context, method, url string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read below
	if res.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<12))
		return fmt.Errorf("%s %s: %s: %s", method, url, res.Status, bytes.TrimSpace(said))
	}
	if into == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// books are the SPI's own, with every order if asked.
func (w *world) books(ctx context.Context, orders bool) (r spitest.Report, err error) {
	q := url.Values{}
	if orders {
		q.Set("orders", "1")
	}
	return r, w.control(ctx, http.MethodGet, "/books", q, nil, &r)
}

// open makes the participant's database, bus and core.
func (p *participant) open() {
	t := p.w.t
	t.Helper()
	name := "cabine_" + string(p.ispb)
	require.NoError(t, p.w.pg.CreateDatabase(t.Context(), name))
	p.dsn = p.w.pg.DSN(name)
	require.NoError(t, p.migrate(t.Context()))
	var err error
	p.db, err = store.Open(t.Context(), store.Config{URL: p.dsn, Application: "test"})
	require.NoError(t, err)
	t.Cleanup(p.db.Close)
	p.payments, p.inbox, p.outbound = store.NewPayments(p.db), store.NewInbox(p.db), store.NewOutbound(p.db)
	require.NoError(t, os.WriteFile(p.keyFile(), []byte(rand.Text()+rand.Text()), 0o600))
	require.NoError(t, p.startCore())
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, all := range p.running {
			for _, one := range all {
				one.kill()
			}
		}
		p.coreSim.kill()
	})
}

func (p *participant) keyFile() string { return filepath.Join(p.w.dir, "core-"+string(p.ispb)+".key") }

// migrate is the deploy step.
func (p *participant) migrate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, program("migrate"), "up")
	cmd.Env = []string{"DATABASE_URL=" + p.dsn, "NATS_URL=" + p.nats.URL()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
}

// startCore starts the core, after the first time where it was before.
func (p *participant) startCore() error {
	listen := "127.0.0.1:0"
	if p.core != "" {
		u, err := url.Parse(p.core)
		if err != nil {
			return err
		}
		listen = u.Host
	}
	var ready struct {
		URL string `json:"url"`
	}
	sim, err := p.w.startWithReadyLine("core-sim", []string{
		"--listen", listen, "--key-file", p.keyFile(), "--reject", "0.02", "--faults", "0.01", "--delay-most", "200ms",
		"--seed", strconv.FormatUint(p.w.seed, 10),
	}, &ready)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coreSim = sim
	if p.core == "" {
		p.core = ready.URL // and stays there
	}
	return nil
}

// enter starts one more replica; one of payments is there once its API listens.
func (p *participant) enter(ctx context.Context, r role) error {
	p.mu.Lock()
	p.started++
	name := fmt.Sprintf("%s-%s-%d", r, p.ispb, p.started)
	p.mu.Unlock()
	path := filepath.Join(p.w.dir, name+".yaml")
	if err := p.configure(path, name, r); err != nil {
		return err
	}
	one, err := p.w.start(name, program(string(r)), []string{"--config", path}, nil)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.running[r] = append(p.running[r], one)
	p.mu.Unlock()
	if r != paying {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-one.listens:
		return nil
	case <-one.done:
		return fmt.Errorf("%s ended while it started", name)
	case <-ctx.Done():
		return fmt.Errorf("%s does not listen: %w", name, ctx.Err())
	}
}

// some returns the replicas of a service.
func (p *participant) some(r role) []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*process(nil), p.running[r]...)
}

// leave takes a replica out of the world, whose end is an accident from now on.
func (p *participant) leave(r role, one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.running[r] {
		if other == one {
			p.running[r] = append(p.running[r][:i:i], p.running[r][i+1:]...)
			return
		}
	}
}

// gone names a replica that ended and that nobody asked to.
func (w *world) gone() error {
	for _, p := range w.participants {
		for _, r := range roles() {
			for _, one := range p.some(r) {
				select {
				case <-one.done:
					return fmt.Errorf("%s ended by itself: %v", one.name, one.cmd.ProcessState)
				default:
				}
			}
		}
	}
	return nil
}

// configure writes what a replica is told. JSON is YAML.
func (p *participant) configure(path, name string, r role) error {
	host, port, err := net.SplitHostPort(p.w.redis.Addr())
	if err != nil {
		return err
	}
	settings := map[string]any{
		"replica":  name,
		"admin":    map[string]any{"listen": "127.0.0.1:0"},
		"icom":     map[string]any{"ispb": p.ispb},
		"postgres": map[string]any{"url": p.dsn},
		"nats":     map[string]any{"url": p.nats.URL()},
	}
	if r == paying {
		p.configurePayments(settings)
	} else {
		settings["redis"] = map[string]any{"host": host, "port": json.Number(port), "timeout": "500ms"}
		settings["lease"] = map[string]any{
			"ttl": "7s", "longest_ttl": "7s", "bank_hold": "4s", "receive_timeout": receiveTimeout.String(),
			"user_timeout": "500ms", "heartbeat": "500ms", "renew_timeout": "500ms", "no_replicas": true,
		}
		if settings["transport"], err = p.transport(name); err != nil {
			return err
		}
	}
	switch r {
	case polling:
		settings["poll"] = map[string]any{"backoff_most": "3s"}
		settings["publish"] = map[string]any{
			"republish_every": "1s", "republish_age": "2s", "sweep_every": "1s", "stuck_age": "4s", "stuck_most": "30s",
		}
	case sending:
		keys := p.w.bank.Signatures[p.ispb]
		settings["signature"] = map[string]any{"key_file": keys.Key, "certificate_file": keys.Certificate}
		settings["send"] = map[string]any{"group": p.groups(), "halt_most": "5s"}
		settings["resend"] = map[string]any{"most": "8s"}
	case paying:
	}
	return writeJSON(path, settings)
}

// groups are mostly large, as signatures cost what this machine has least of.
func (p *participant) groups() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started%4 == 0 {
		return map[string]any{"pacs008": 1, "pacs002": 1, "pacs004": 1}
	}
	return map[string]any{"pacs008": 10, "pacs002": 10, "pacs004": 3}
}

func (p *participant) configurePayments(settings map[string]any) {
	settings["api"] = map[string]any{"listen": "127.0.0.1:0", "tokens": "test=" + apiToken}
	settings["throttle"] = map[string]any{"disabled": true}
	settings["core"] = map[string]any{
		"url": p.core, "key_id": "k1", "key": p.secret(), "timeout": "3s", "attempt_timeout": "1300ms", "open_for": "1s",
	}
	settings["signature"] = map[string]any{"spi_certificates": p.w.bank.SPI}
	settings["inbound"] = map[string]any{
		"settle_within": settleWithin.String(), "scheduled_within": settleWithin.String(), "answer_margin": "1s",
		"no_entry_code": spiHasNone,
	}
	settings["outbox"] = map[string]any{"stuck_most": "30s"}
	settings["watch"] = map[string]any{"every": "1s", "enquire_after": "21s", "enquire_most": "21s"}
}

func (p *participant) secret() string {
	text, err := os.ReadFile(p.keyFile())
	if err != nil {
		return "" // which no service starts with
	}
	return string(text)
}

func (p *participant) transport(name string) (map[string]any, error) {
	files := p.w.bank.Clients[p.ispb]
	path := filepath.Join(p.w.dir, name+".bacen.json")
	return map[string]any{"plugin": program("transport-bacen"), "env": map[string]any{"CABINE_BACEN": path}}, writeJSON(path, map[string]any{
		"channels": map[string]any{
			"cpm": map[string]any{"url": "https://" + p.w.bank.CPM, "server_name": "localhost"},
			"csm": map[string]any{"url": "https://" + p.w.bank.CSM, "server_name": "localhost"},
		},
		"ca": files.CA, "user_timeout": "500ms",
		"participants": map[string]any{string(p.ispb): map[string]any{"cert": files.Cert, "key": files.Key}},
	})
}

func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, clock.System(), d) }
