package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
	desk "github.com/cabine-pix/cabine/libs/order"
	"github.com/cabine-pix/cabine/services/payments/api"
)

// Without tokens the API does not open, and no other field is guessed.
func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	valid := api.Config{ISPB: us, Listen: ":0", Tokens: "core=" + coreToken, Throttle: edge.ThrottleConfig{Limit: 1, Window: time.Second}}
	require.NoError(t, valid.WithDefaults().Validate())
	for name, change := range map[string]func(*api.Config){
		"no tokens":       func(c *api.Config) { c.Tokens = "" },
		"short token":     func(c *api.Config) { c.Tokens = "core=short" },
		"no ISPB":         func(c *api.Config) { c.ISPB = "" },
		"no address":      func(c *api.Config) { c.Listen = "" },
		"cert alone":      func(c *api.Config) { c.TLS.Cert = "x" },
		"key alone":       func(c *api.Config) { c.TLS.Key = "x" },
		"client CA alone": func(c *api.Config) { c.TLS.ClientCA = "x" },
		"no throttle":     func(c *api.Config) { c.Throttle = edge.ThrottleConfig{} },
		"small body":      func(c *api.Config) { c.MaxBody = 100 },
		"large body":      func(c *api.Config) { c.MaxBody = 1 << 30 },
		"long request":    func(c *api.Config) { c.RequestTimeout = time.Minute },
		"short drain":     func(c *api.Config) { c.DrainTimeout = time.Second },
	} {
		cfg := valid
		change(&cfg)
		_, err := api.New(cfg, api.Deps{Metrics: prometheus.NewRegistry()})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), coreToken)
	}
}

// started runs an API on a free port until stop is called, which returns what Run returned.
func (w *world) started(gate desk.Gate, change func(*api.Config)) (address string, stop func() error) {
	w.t.Helper()
	a := w.newAPI(gate, change)
	require.Empty(w.t, a.Address())
	ctx, cancel := context.WithCancel(w.t.Context())
	require.NoError(w.t, a.Listen(ctx))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	w.t.Cleanup(cancel)
	return a.Address(), func() error {
		cancel()
		return <-done
	}
}

func client(t *testing.T, cfg *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func posting(t *testing.T, url, key string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/pix", strings.NewReader(order(nil)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+coreToken)
	r.Header.Set(edge.KeyHeader, key)
	return r
}

// A request under way when the API is told to stop gets its answer; a new connection gets none.
func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := &slowGate{at: make(chan struct{}), open: make(chan struct{})}
	address, stop := w.started(gate, func(*api.Config) {})
	type outcome struct {
		status int
		err    error
	}
	got := make(chan outcome, 1)
	asking, request := client(t, nil), posting(t, "http://"+address, "k")
	go func() {
		answer, err := asking.Do(request)
		if err != nil {
			got <- outcome{err: err}
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		got <- outcome{answer.StatusCode, err}
	}()
	<-gate.at
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 10*time.Second, 5*time.Millisecond)
	close(gate.open)
	require.Equal(t, outcome{status: http.StatusCreated}, <-got)
	require.NoError(t, <-stopped)
}

// What does not end in its time is cut off, and its key is free for the same order.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := &slowGate{at: make(chan struct{}), open: make(chan struct{})}
	address, stop := w.started(gate, func(c *api.Config) {
		c.RequestTimeout, c.DrainTimeout = 3*time.Second, 3*time.Second
	})
	failed := make(chan error, 1)
	asking, request := client(t, nil), posting(t, "http://"+address, "k")
	go func() {
		answer, err := asking.Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		failed <- err
	}()
	<-gate.at
	require.NoError(t, stop())
	require.Error(t, <-failed)
	close(gate.open)
	require.Contains(t, w.logged(), "requests were cut off")
	require.Eventually(t, func() bool { return w.order(order(nil), "k").Code == http.StatusCreated }, 10*time.Second, 10*time.Millisecond)
}

// With TLS, and with a CA for clients: without a certificate of it nobody gets as far as a token.
func TestTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := newPKI(t)
	address, stop := w.started(nil, func(c *api.Config) {
		c.TLS = api.TLSConfig{Cert: files.cert, Key: files.key, ClientCA: files.ca}
	})
	url := "https://" + address
	with := &tls.Config{RootCAs: files.pool, Certificates: []tls.Certificate{files.pair}, MinVersion: tls.VersionTLS12}
	answer, err := client(t, with).Do(posting(t, url, "k"))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	for name, cfg := range map[string]*tls.Config{
		"no certificate": {RootCAs: files.pool, MinVersion: tls.VersionTLS12},
		"old protocol":   {RootCAs: files.pool, Certificates: []tls.Certificate{files.pair}, MaxVersion: tls.VersionTLS11},
	} {
		answer, err := client(t, cfg).Do(posting(t, url, "k"))
		if err == nil {
			_ = answer.Body.Close()
		}
		require.Error(t, err, name)
	}
	require.NoError(t, stop())
	for name, cfg := range map[string]api.TLSConfig{
		"no such file":         {Cert: files.cert + "x", Key: files.key},
		"another key":          {Cert: files.cert, Key: files.ca},
		"CA that is no PEM":    {Cert: files.cert, Key: files.key, ClientCA: files.empty},
		"CA that is not there": {Cert: files.cert, Key: files.key, ClientCA: files.ca + "x"},
	} {
		_, err := api.New(api.Config{
			ISPB: us, Listen: ":0", Tokens: "core=" + coreToken, TLS: cfg, Throttle: edge.ThrottleConfig{Disabled: true},
		}, api.Deps{DB: w.db, Metrics: prometheus.NewRegistry()})
		require.Error(t, err, name)
	}
}

type pki struct {
	cert, key, ca, empty string
	pool                 *x509.CertPool
	pair                 tls.Certificate
}

// newPKI makes an authority and a certificate of it that serves both ends.
func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "both"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	require.NoError(t, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	p := pki{
		cert: write("cert.pem", "CERTIFICATE", leafDER), key: write("key.pem", "PRIVATE KEY", keyDER), ca: write("ca.pem", "CERTIFICATE", caDER),
		empty: filepath.Join(dir, "empty.pem"), pool: x509.NewCertPool(),
	}
	require.NoError(t, os.WriteFile(p.empty, nil, 0o600))
	authority, err := x509.ParseCertificate(caDER)
	require.NoError(t, err)
	p.pool.AddCert(authority)
	p.pair, err = tls.LoadX509KeyPair(p.cert, p.key)
	require.NoError(t, err)
	return p
}
