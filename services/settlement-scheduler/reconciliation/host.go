package reconciliation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/statement"
)

// HostConfig says where the bank's files are. The zero value of MaxBytes and Timeout means its default.
type HostConfig struct {
	// URL of the file host: https, host and port only. Required.
	URL string
	// ServerName that its certificate must have. Default: the URL's host.
	ServerName string
	// CertFile and KeyFile are the participant's client certificate, CAFile the host's authorities, as PEM files. The first two
	// are read for each connection. Required.
	CertFile, KeyFile, CAFile string
	// MaxBytes is the largest archive that is taken. Default 1 GiB.
	MaxBytes int64
	// Timeout bounds one download. Default 10 min.
	Timeout time.Duration
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c HostConfig) WithDefaults() HostConfig {
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	return c
}

// Validate names every field that is wrong.
func (c HostConfig) Validate() error {
	var errs []error
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, errors.New("files URL is not https://host[:port]"))
	}
	if c.CertFile == "" || c.KeyFile == "" || c.CAFile == "" {
		errs = append(errs, errors.New("the file host needs the client's certificate and key and the host's authorities"))
	}
	if c.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want at least 1", c.MaxBytes))
	}
	if c.Timeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("timeout is %v, want at least 1ms", c.Timeout))
	}
	return errors.Join(errs...)
}

// Host is the bank's file host. It is safe for concurrent use.
type Host struct {
	cfg    HostConfig
	client *http.Client
}

// NewHost returns a host that was not spoken to yet. It reads the certificates, so that what is missing is known at once.
func NewHost(cfg HostConfig, clk clock.Clock) (*Host, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("file host config: %w", err)
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("file host: authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("file host: no certificate in %s", cfg.CAFile)
	}
	pair := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("file host: client certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := pair(); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
		// A file an hour: no connection is kept, nothing is unpacked on the way, and no proxy is asked.
		DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName, RootCAs: roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() },
			Time:                 func() time.Time { return clk.Now().Wall },
		},
	}
	return &Host{cfg: cfg, client: &http.Client{
		Transport: transport,
		// The bank names no other place, and who does is not the bank.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Fetch writes the archive of a hash to w and returns its size. It fails if the host does not have it, or has more than
// allowed, or breaks off.
func (h *Host) Fetch(ctx context.Context, ispb pix.ISPB, hash string, w io.Writer) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	from, err := url.JoinPath(h.cfg.URL, "api", "v1", "download", string(ispb), "extrato", statement.Name(hash))
	if err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	request.Header.Set("Accept", "*/*")
	answer, err := h.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // read as far as it is wanted
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("download: the file host answers %d", answer.StatusCode)
	}
	// One byte more than allowed is enough to see that it is too much.
	n, err := io.Copy(w, io.LimitReader(answer.Body, h.cfg.MaxBytes+1))
	if err == nil && n > h.cfg.MaxBytes {
		err = fmt.Errorf("more than %d bytes", h.cfg.MaxBytes)
	}
	if err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	return n, nil
}
