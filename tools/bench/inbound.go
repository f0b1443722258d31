package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// Inbound is durable messages per second.
type Inbound struct {
	// Ours is what the poller stored per second, Bare what a loop read and forgot, Ratio ours by bare.
	Ours  float64 `json:"ours"`
	Bare  float64 `json:"bare"`
	Ratio float64 `json:"ratio"`
}

const (
	backlog  = 250_000 // messages that wait at the bank when a measurement begins
	leftOver = 5_000   // a measurement ends before the bank runs dry
)

// inbound measures what the poller, as the process that is shipped, makes durable per
// second on one channel with six slots, against a loop on six connections that reads
// the same bank and forgets, at several delays of the bank.
func inbound(ctx context.Context, c config, _ *devstack.Stack, r *Report, out io.Writer) (err error) {
	s, err := stage.SetUp(ctx, stage.Config{
		MaxSlots: lease.MaxSlots, Bank: []string{"--unmetered", "--forget-ids"}, Progress: io.Discard,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	for k, v := range s.Versions() {
		r.Versions[k] = v
	}
	r.Inbound = make(map[string]Inbound)
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		fault := "[]"
		if delay > 0 {
			fault = fmt.Sprintf(`[{"delay":%q}]`, delay.String())
		}
		if err := s.Control(ctx, http.MethodPost, "/faults", url.Values{"channel": {"cpm"}}, fault, nil); err != nil {
			return err
		}
		var v Inbound
		if v.Bare, err = under(ctx, c, s, bare); err != nil {
			return fmt.Errorf("bare loop: %w", err)
		}
		if v.Ours, err = under(ctx, c, s, poller); err != nil {
			return fmt.Errorf("poller: %w", err)
		}
		v.Ratio = v.Ours / v.Bare
		r.Inbound[delay.String()] = v
		_, _ = fmt.Fprintf(out, "inbound, bank delay %-5v %8.0f messages/s durable, %8.0f bare, ratio %.2f\n", delay, v.Ours, v.Bare, v.Ratio)
	}
	return nil
}

// under counts the messages that the bank saw confirmed per second while reader reads.
func under(ctx context.Context, c config, s *stage.Stage, reader func(context.Context, *stage.Stage) error) (float64, error) {
	now, err := s.Report(ctx)
	if err != nil {
		return 0, err
	}
	fill := url.Values{
		"channel": {"cpm"}, "ispb": {string(stage.ISPB)},
		"n": {strconv.Itoa(max(1, backlog-now.Participant(pix.CPM, stage.ISPB).Queued))},
	}
	if err := s.Control(ctx, http.MethodPost, "/enqueue", fill, "", nil); err != nil {
		return 0, err
	}
	readCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- reader(readCtx, s) }()
	perS, err := measureAcked(ctx, c, s, done)
	stop()
	return perS, errors.Join(err, <-done)
}

func measureAcked(ctx context.Context, c config, s *stage.Stage, done chan error) (float64, error) {
	var first, last icomtest.Participant
	var from, to time.Time
	for deadline := time.Now().Add(c.window + time.Minute); time.Now().Before(deadline); {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
		select {
		case err := <-done:
			done <- nil
			return 0, fmt.Errorf("the reader ended: %w", err)
		default:
		}
		rep, err := s.Report(ctx)
		if err != nil {
			return 0, err
		}
		p := rep.Participant(pix.CPM, stage.ISPB)
		switch {
		case p.PeakRequests > 0 && p.StreamsNow < lease.MaxSlots, p.Queued > backlog-2000: // not at speed yet
			continue
		case from.IsZero():
			first, from = p, time.Now()
		case p.Queued > leftOver:
			last, to = p, time.Now()
		}
		if p.Queued <= leftOver || time.Since(from) > c.window {
			break
		}
	}
	if to.Sub(from) < time.Second {
		return 0, fmt.Errorf("measured for %v only, want at least 1s", to.Sub(from))
	}
	return float64(last.Acked-first.Acked) / to.Sub(from).Seconds(), nil
}

// poller is one replica.
func poller(ctx context.Context, s *stage.Stage) error {
	icomOnly := map[string]any{"icom": map[string]any{
		"ispb": stage.ISPB, "max_slots": lease.MaxSlots, "csm": map[string]any{"enabled": false},
	}}
	var last bytes.Buffer
	p, err := s.Participants[0].Poller("bench", func(line []byte) { last.Reset(); last.Write(line) }, icomOnly)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return p.Stop(30 * time.Second)
	case <-p.Done():
		return fmt.Errorf("the poller ended: %w: %s", p.Err(), last.Bytes())
	}
}

// bare reads on six connections with what the standard library offers, follows the
// cursor, decompresses, and forgets.
func bare(ctx context.Context, s *stage.Stage) error {
	files := s.Participants[0].Files()
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	g, ctx := errgroup.WithContext(ctx)
	for range lease.MaxSlots {
		tr := &http.Transport{
			TLSClientConfig: &tls.Config{ //nolint:gosec // 1.2 is what the ICOM speaks
				Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "localhost",
				MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
			},
			MaxConnsPerHost: 1, DisableCompression: true,
		}
		g.Go(func() error {
			defer tr.CloseIdleConnections()
			return readLoop(ctx, tr, "https://"+s.Addr(pix.CPM), icom.PathStreamStart(stage.ISPB))
		})
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func readLoop(ctx context.Context, tr *http.Transport, base, path string) error {
	for {
		next, err := readOnce(ctx, tr, http.MethodGet, base+path)
		if ctx.Err() != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			_, err := readOnce(closing, tr, http.MethodDelete, base+path)
			return err
		}
		if err != nil {
			return err
		}
		path = next
	}
}

func readOnce(ctx context.Context, tr *http.Transport, method, target string) (next string, err error) {
	// What is under way ends: a request cut off would go on counting at the bank.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, target, nil)
	if err != nil {
		return "", err
	}
	req.Host = "localhost"
	req.Header.Set("Accept", "multipart/mixed")
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("User-Agent", "bench")
	res, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	body := io.Reader(res.Body)
	if res.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(res.Body); err != nil {
			return "", err
		}
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(body, 64<<20)); err != nil {
		return "", err
	}
	if res.StatusCode >= 300 && method == http.MethodGet {
		return "", fmt.Errorf("GET answered %s", res.Status)
	}
	return res.Header.Get(icom.HeaderPullNext), nil
}
