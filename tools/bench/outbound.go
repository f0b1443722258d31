package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/tools/internal/stage"
)

// Outbound is what one replica of the sender does.
type Outbound struct {
	// PaymentsPerS reached the SPI through Permits at RoundTripMS.
	PaymentsPerS float64 `json:"payments_per_s"`
	// LimitPerS is permits x messages x transactions / round trip, and Ratio PaymentsPerS by it.
	LimitPerS   float64 `json:"limit_per_s"`
	Ratio       float64 `json:"ratio"`
	Permits     int     `json:"permits"`
	RoundTripMS int64   `json:"round_trip_ms"`
	// LoneWaitMS is how long a payment with no other one about waited to be taken into a batch.
	LoneWaitMS LoneWait `json:"lone_wait_ms"`
	// SignOverhead is what a signed message of one transaction costs beyond its RSA, as a share of that.
	SignOverhead float64           `json:"sign_overhead"`
	Versions     map[string]string `json:"versions"`
}

// LoneWait has the upper edge of the histogram's bucket in which the percentile lies.
type LoneWait struct {
	P99 float64 `json:"p99"`
	N   int     `json:"n"`
}

const (
	// virtual is a participant at the SPI that accepts everything.
	virtual = pix.ISPB("99999A04")

	sendPermits = 2
	roundTrip   = 250 * time.Millisecond
	perPost     = 10
	perMessage  = iso20022.MaxTransactions
	lonePauses  = 100
)

// outbound measures a sender against what its permits allow at a bank that takes 250 ms for an answer.
func outbound(ctx context.Context, c config, _ *devstack.Stack, r *Report, out io.Writer) (err error) {
	o := &Outbound{
		Permits: sendPermits, RoundTripMS: roundTrip.Milliseconds(),
		LimitPerS: sendPermits * perPost * perMessage / roundTrip.Seconds(),
	}
	r.Outbound = o
	if o.SignOverhead, err = signOverhead(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "a signed message costs %.0f %% more than its RSA\n", 100*o.SignOverhead)
	s, err := stage.SetUp(ctx, stage.Config{
		// What does not poll sends: six permits, four of them for readers that are not here.
		MaxSlots: 6 - sendPermits, Payments: true, Progress: io.Discard,
		Bank: []string{
			"--participant", string(virtual) + "=0.00,virtual", "--forget-ids", "--unmetered",
			"--settle-within", "1h", "--order-within", "1h",
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.TearDown()) }()
	o.Versions = s.Versions()
	payer := s.Participants[0]
	b, err := newBooker(ctx, payer, virtual)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()

	var admin address
	sender, err := payer.Sender("bench", admin.read, map[string]any{
		"icom": map[string]any{"ispb": payer.ISPB, "max_slots": 6 - sendPermits, "csm": map[string]any{"enabled": false}},
		"send": map[string]any{"group": map[string]any{"pacs008": perMessage}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sender.Stop(20*time.Second)) }()
	if o.LoneWaitMS, err = lone(ctx, s, b, &admin); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "a lone payment waited at most %.1f ms for its batch (99 %% of %d)\n", o.LoneWaitMS.P99, o.LoneWaitMS.N)
	if o.PaymentsPerS, err = sustained(ctx, c, s, b); err != nil {
		return err
	}
	o.Ratio = o.PaymentsPerS / o.LimitPerS
	_, _ = fmt.Fprintf(out, "%.0f payments/s through %d permits at %v, limit %.0f, ratio %.2f\n", o.PaymentsPerS, o.Permits, roundTrip, o.LimitPerS, o.Ratio)
	return nil
}

// reached counts the payments of the participant that the SPI has decided.
func reached(ctx context.Context, s *stage.Stage) (int, error) {
	books, err := s.Books(ctx, false)
	p := books.Account(s.Participants[0].ISPB).PaymentsOut
	if p.Rejected > 0 {
		err = errors.Join(err, fmt.Errorf("the SPI rejected %d payments", p.Rejected))
	}
	return p.Settled, err
}

// lone gives one order at a time, each when the one before has arrived, and reads how long they waited.
func lone(ctx context.Context, s *stage.Stage, b *booker, admin *address) (LoneWait, error) {
	before := make(map[float64]float64)
	for i := range lonePauses + 1 {
		if i == 1 { // the first one waited for its permit
			var err error
			if before, err = admin.buckets(ctx, "cabine_outbound_batch_wait_seconds", `channel="cpm"`); err != nil {
				return LoneWait{}, err
			}
		}
		operations, err := b.book(ctx, 1)
		if err != nil {
			return LoneWait{}, err
		}
		if err := b.announce(ctx, operations); err != nil {
			return LoneWait{}, err
		}
		if err := arrived(ctx, s, i+1); err != nil {
			return LoneWait{}, err
		}
	}
	after, err := admin.buckets(ctx, "cabine_outbound_batch_wait_seconds", `channel="cpm"`)
	if err != nil {
		return LoneWait{}, err
	}
	edges := make([]float64, 0, len(after))
	for edge := range after {
		edges = append(edges, edge)
	}
	slices.Sort(edges)
	for _, edge := range edges {
		if after[edge]-before[edge] >= .99*lonePauses && !math.IsInf(edge, 1) {
			return LoneWait{P99: edge * 1000, N: lonePauses}, nil
		}
	}
	return LoneWait{}, errors.New("waits are beyond the histogram")
}

func arrived(ctx context.Context, s *stage.Stage, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("payment %d did not reach the SPI in 30s", n))
	defer cancel()
	for {
		have, err := reached(ctx, s)
		if err != nil || have >= n {
			return err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

// sustained lets orders wait in front of the sender and counts what reaches the SPI per second.
func sustained(ctx context.Context, c config, s *stage.Stage, b *booker) (float64, error) {
	fault := fmt.Sprintf(`[{"kinds":["send"],"delay":%q}]`, roundTrip.String())
	if err := s.Control(ctx, http.MethodPost, "/faults", url.Values{"channel": {"cpm"}}, fault, nil); err != nil {
		return 0, err
	}
	const slice = 500
	var waiting []store.Operation
	for len(waiting) < int(1000*(c.window.Seconds()+4)) {
		operations, err := b.book(ctx, slice)
		if err != nil {
			return 0, err
		}
		waiting = append(waiting, operations...)
	}
	if err := b.announce(ctx, waiting); err != nil {
		return 0, err
	}
	if err := sleep(ctx, time.Second); err != nil { // to be at speed
		return 0, err
	}
	first, err := reached(ctx, s)
	if err != nil {
		return 0, err
	}
	from := time.Now()
	if err := sleep(ctx, c.window); err != nil {
		return 0, err
	}
	last, err := reached(ctx, s)
	took := time.Since(from)
	if err == nil && last >= lonePauses+1+len(waiting) {
		err = errors.New("nothing was left to send: the measurement is of the waiting")
	}
	return float64(last-first) / took.Seconds(), err
}

// signOverhead signs one message again and again, and its hash with the bare key, in turns.
func signOverhead() (float64, error) {
	id, err := signaturetest.New(string(stage.ISPB), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		return 0, err
	}
	signer, err := signature.FromCertificate(id.Key, id.Certificate)
	if err != nil {
		return 0, err
	}
	row, err := (&booker{payer: &stage.Participant{ISPB: stage.ISPB}, receiver: virtual}).order(time.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return 0, err
	}
	var order iso20022.CreditTransfer
	if err := json.Unmarshal(row.Document, &order); err != nil {
		return 0, err
	}
	msgID, err := pix.NewMsgID(stage.ISPB, rand.Reader)
	if err != nil {
		return 0, err
	}
	envelope, err := iso20022.DefaultVersions().Build(
		iso20022.Header{From: stage.ISPB, To: pix.SPI, MsgID: msgID, Created: order.AcceptedAt},
		&iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: []iso20022.CreditTransfer{order}},
	)
	if err != nil {
		return 0, err
	}
	const turns = 400
	whole, bare := make([]time.Duration, turns), make([]time.Duration, turns)
	hash := sha256.Sum256(envelope)
	for i := range turns {
		at := time.Now()
		if _, err := signer.Sign(envelope); err != nil {
			return 0, err
		}
		whole[i], at = time.Since(at), time.Now()
		if _, err := rsa.SignPKCS1v15(rand.Reader, id.Key, crypto.SHA256, hash[:]); err != nil {
			return 0, err
		}
		bare[i] = time.Since(at)
	}
	slices.Sort(whole)
	slices.Sort(bare)
	return float64(whole[turns/2])/float64(bare[turns/2]) - 1, nil
}

// address is where a service's metrics are, once its log has said so.
type address struct {
	mu   sync.Mutex
	base string
}

func (a *address) read(line []byte) {
	var said struct {
		Msg     string `json:"msg"`
		Address string `json:"address"`
	}
	if json.Unmarshal(line, &said) != nil || said.Msg != "admin server listens" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.base = "http://" + said.Address
}

// buckets returns the cumulative counts of a histogram by their upper edges.
func (a *address) buckets(ctx context.Context, name, label string) (map[float64]float64, error) {
	a.mu.Lock()
	base := a.base
	a.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return nil, err
	}
	found := make(map[float64]float64)
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); {
		line := scanner.Text()
		if !strings.HasPrefix(line, name+"_bucket{") || !strings.Contains(line, label) {
			continue
		}
		_, rest, _ := strings.Cut(line, `le="`)
		le, count, ok := strings.Cut(rest, `"} `)
		edge, errEdge := strconv.ParseFloat(le, 64)
		n, errCount := strconv.ParseFloat(count, 64)
		if !ok || errEdge != nil || errCount != nil {
			return nil, fmt.Errorf("metrics: cannot read %q", line)
		}
		found[edge] = n
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("metrics: there is no %s with %s", name, label)
	}
	return found, nil
}
