package bacen_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/plugins/transport-bacen/bacen"
)

func asError(t *testing.T, err error) *transport.Error {
	t.Helper()
	var e *transport.Error
	require.ErrorAs(t, err, &e)
	return e
}

// install writes a certificate over the participant's files.
func install(t *testing.T, id bacen.Identity, pair tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(id.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	require.NoError(t, os.WriteFile(id.Cert, cert, 0o600))
}

func pullOnce(t *testing.T, tr transport.Transport, p transport.Permit) error {
	t.Helper()
	_, err := tr.Pull(t.Context(), transport.PullRequest{Permit: p, Timeout: 30 * time.Second})
	return err
}

func TestReadyNamesWhatIsWrongWithACertificate(t *testing.T) {
	t.Parallel()
	bank := icomtest.Start(t, icomtest.Config{})
	cfg := configure(t, bank)
	tr := open(t, cfg)
	id := cfg.Participants[ispb]
	require.NoError(t, tr.Ready(t.Context(), pix.CPM, ispb))

	expired, err := bank.PKI().ClientValid(ispb, time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour))
	require.NoError(t, err)
	install(t, id, expired)
	require.ErrorContains(t, tr.Ready(t.Context(), pix.CPM, ispb), "expired")

	early, err := bank.PKI().ClientValid(ispb, time.Now().Add(time.Hour), time.Now().Add(24*time.Hour))
	require.NoError(t, err)
	install(t, id, early)
	require.ErrorContains(t, tr.Ready(t.Context(), pix.CPM, ispb), "valid only from")

	another, err := bank.PKI().Client("87654321")
	require.NoError(t, err)
	install(t, id, another)
	require.ErrorContains(t, tr.Ready(t.Context(), pix.CPM, ispb), "not for 12345678")
	cfg.AnySubject = true
	require.NoError(t, open(t, cfg).Ready(t.Context(), pix.CPM, ispb))

	require.ErrorContains(t, tr.Ready(t.Context(), pix.CPM, "99999999"), "not configured")
	require.ErrorContains(t, tr.Ready(t.Context(), "x", ispb), "not")
}

func TestReadyNamesWhatIsWrongWithTheBank(t *testing.T) {
	t.Parallel()
	bank := icomtest.Start(t, icomtest.Config{})
	good := configure(t, bank)
	for reason, change := range map[string]func(*bacen.Config){
		"certificate is valid for": func(c *bacen.Config) {
			c.Channels = map[pix.Channel]bacen.Channel{pix.CPM: {URL: bank.URL(pix.CPM), ServerName: "elsewhere.example"}}
		},
		"unknown authority": func(c *bacen.Config) {
			other, err := icomtest.NewPKI()
			require.NoError(t, err)
			files, err := other.WriteClient(t.TempDir(), ispb)
			require.NoError(t, err)
			c.CA = files.CA
		},
		"no such file": func(c *bacen.Config) { c.CA = filepath.Join(t.TempDir(), "none.pem") },
		"connection refused": func(c *bacen.Config) {
			c.Channels = map[pix.Channel]bacen.Channel{pix.CPM: {URL: "https://127.0.0.1:1"}}
		},
		"no such host": func(c *bacen.Config) {
			c.Channels = map[pix.Channel]bacen.Channel{pix.CPM: {URL: "https://bank.invalid:16422"}}
			c.DialTimeout = bacen.Duration(20 * time.Second)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			cfg := good
			change(&cfg)
			tr := open(t, cfg)
			err := tr.Ready(t.Context(), pix.CPM, ispb)
			require.ErrorIs(t, err, transport.NotSent)
			if reason != "no such host" { // a machine without a resolver says it in other words
				require.ErrorContains(t, err, reason)
			}
			require.ErrorIs(t, pullOnce(t, tr, permit(1, time.Minute)), transport.NotSent)
		})
	}
}

func TestARotatedCertificateServesNewConnections(t *testing.T) {
	t.Parallel()
	bank := icomtest.Start(t, icomtest.Config{Hold: time.Millisecond, AllowViolations: true})
	cfg := configure(t, bank)
	tr := open(t, cfg)
	kept := permit(1, time.Minute)
	require.NoError(t, pullOnce(t, tr, kept))

	// Another participant's certificate, because the bank shows it: 403.
	another, err := bank.PKI().Client("87654321")
	require.NoError(t, err)
	install(t, cfg.Participants[ispb], another)
	require.NoError(t, pullOnce(t, tr, kept), "the open connection goes on")
	err = pullOnce(t, tr, permit(2, time.Minute))
	require.ErrorIs(t, err, transport.Rejected)
	require.Equal(t, 403, asError(t, err).Status)
	require.NotEmpty(t, asError(t, err).ProblemType)

	// A file in the middle of being replaced: the last good pair serves.
	require.NoError(t, os.WriteFile(cfg.Participants[ispb].Cert, []byte("half a cert"), 0o600))
	require.Equal(t, 403, asError(t, pullOnce(t, tr, permit(3, time.Minute))).Status)
}

func TestConnectionsEndByAgeAndIdleness(t *testing.T) {
	t.Parallel()
	bank := icomtest.Start(t, icomtest.Config{Hold: time.Millisecond})
	connections := func() map[uint64]bool {
		seen := map[uint64]bool{}
		for _, r := range bank.Requests(pix.CPM, ispb) {
			seen[r.Conn] = true
		}
		return seen
	}
	cfg := configure(t, bank)
	cfg.MaxConnectionAge = bacen.Duration(time.Millisecond)
	tr := open(t, cfg)
	for range 3 {
		require.NoError(t, pullOnce(t, tr, permit(1, time.Minute)))
		require.Eventually(t, func() bool { return bank.Report().Participant(pix.CPM, ispb).RequestsNow == 0 }, 10*time.Second, 2*time.Millisecond)
	}
	require.Len(t, connections(), 3, "each one too old for the next request")
	require.Equal(t, 1, bank.Report().Participant(pix.CPM, ispb).PeakConnections, "and closed before the next is opened")
	tr.Close()

	cfg.MaxConnectionAge, cfg.MaxIdle = 0, bacen.Duration(50*time.Millisecond)
	tr = open(t, cfg)
	require.NoError(t, pullOnce(t, tr, permit(1, time.Minute)))
	require.Eventually(t, func() bool {
		return bank.Report().Participant(pix.CPM, ispb).ConnectionsNow == 0
	}, 10*time.Second, time.Millisecond, "closed without a call")
}

func TestSpoiledAnswersAreMalformedAndSettled(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	for _, spoil := range []icomtest.Malformed{
		icomtest.NoBoundary, icomtest.NoCursor, icomtest.TruncatedMultipart,
		icomtest.NotGzip, icomtest.GzipBomb, icomtest.Oversize,
	} {
		t.Run(string(spoil), func(t *testing.T) {
			t.Parallel()
			// The bank cannot find the end of a compressed multipart to cut it off.
			bank := icomtest.Start(t, icomtest.Config{PKI: pki, NoGzip: spoil == icomtest.TruncatedMultipart})
			require.NoError(t, bank.SetFaults(pix.CPM, icomtest.Fault{Malformed: spoil}))
			bank.Enqueue(pix.CPM, ispb, []byte("<a/>"), []byte("<b/>"))
			err := pullOnce(t, open(t, configure(t, bank)), permit(1, time.Minute))
			require.ErrorIs(t, err, transport.Malformed)
			require.True(t, asError(t, err).Exchange.Complete)
			require.NotEmpty(t, asError(t, err).Reason)
		})
	}
}

func TestAFaultOfAMessageIsNotTheAnswers(t *testing.T) {
	t.Parallel()
	pki := authority(t)
	read := func(t *testing.T, spoil icomtest.Malformed) []transport.Message {
		bank := icomtest.Start(t, icomtest.Config{PKI: pki})
		require.NoError(t, bank.SetFaults(pix.CPM, icomtest.Fault{Malformed: spoil}))
		bank.Enqueue(pix.CPM, ispb, []byte("<a/>"), []byte("<b/>"))
		r, err := open(t, configure(t, bank)).Pull(t.Context(), transport.PullRequest{Permit: permit(1, time.Minute), Timeout: 5 * time.Second})
		require.NoError(t, err)
		require.NotEmpty(t, r.Cursor)
		require.Len(t, r.Messages, 2)
		return r.Messages
	}
	nameless := read(t, icomtest.NoResourceID)
	require.Empty(t, nameless[0].ResourceID)
	require.NotEmpty(t, nameless[1].ResourceID)
	for _, m := range read(t, icomtest.WrongCharset) {
		require.Equal(t, "charset is not utf-8", m.Fault)
		require.NotEmpty(t, m.ResourceID)
		require.NotEmpty(t, m.Body)
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	load := func(value string) error {
		_, err := bacen.FromEnv(func(name string) string {
			require.Equal(t, bacen.EnvConfig, name)
			return value
		}, clock.System(), log)
		return err
	}
	good := bacen.Config{
		Channels:     map[pix.Channel]bacen.Channel{pix.CPM: {URL: "https://icom.pi.rsfn.net.br:16422"}},
		Participants: map[pix.ISPB]bacen.Identity{ispb: {Cert: "/c", Key: "/k"}},
		CA:           "/ca",
		MaxIdle:      bacen.Duration(1500 * time.Millisecond),
	}
	text, err := json.Marshal(good)
	require.NoError(t, err)
	require.Contains(t, string(text), `"max_idle":"1.5s"`)
	require.NoError(t, load(string(text)))
	path := filepath.Join(t.TempDir(), "bacen.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, load(path))

	require.ErrorContains(t, load(""), "not set")
	require.ErrorContains(t, load("/does/not/exist"), "no such file")
	require.ErrorContains(t, load(`{"chanels":{}}`), "unknown field")
	err = load(`{"channels":{"x":{"url":"http://h"}},"participants":{"1":{}},"dial_timeout":"1us","user_timeout":"1us"}`)
	for _, want := range []string{`channel "x"`, "want https", "ISPB", "cert and key", "ca: no file", "dial_timeout", "UserTimeout"} {
		require.ErrorContains(t, err, want)
	}
}
