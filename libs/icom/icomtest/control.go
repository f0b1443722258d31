package icomtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	maxControlBody       = 1 << 20
	maxEnqueue           = 1_000_000
	controlShutdown      = 2 * time.Second
	controlHeaderTimeout = 10 * time.Second
)

// ServeControl offers the bank's controls over plain HTTP until ctx ends. It
// authenticates nobody: listen on loopback.
//
//	POST /enqueue?channel=&ispb=&n=&rate=&kind=   examples, at once or at a rate per second (n=0: without end)
//	POST /faults?channel=                         a JSON list of rules, which replaces the old ones
//	POST /cut?channel=                            resets every connection
//	GET  /report                                  Report
//	GET  /violations                              list of Violation
//	GET  /ids?channel=&ispb=                      IDs
//	GET  /requests?channel=&ispb=                 list of Request, oldest first
//
// A rule of /faults has the fields of Fault in snake case, durations as "250ms". Every other path is Config.Control's.
func (b *Bank) ServeControl(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var feeds sync.WaitGroup
	defer feeds.Wait()
	defer cancel()
	srv := &http.Server{Handler: b.control(ctx, &feeds), ReadHeaderTimeout: controlHeaderTimeout}
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlShutdown)
		defer cancel()
		done <- srv.Shutdown(ctx)
	})
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("icomtest: control: %w", err)
	}
	if err := <-done; err != nil {
		return fmt.Errorf("icomtest: control: %w", errors.Join(err, srv.Close()))
	}
	return nil
}

// control routes. Feeds run until ctx ends and are counted in feeds.
func (b *Bank) control(ctx context.Context, feeds *sync.WaitGroup) http.Handler {
	mux := http.NewServeMux()
	if b.cfg.Control != nil {
		mux.Handle("/", b.cfg.Control)
	}
	mux.HandleFunc("POST /enqueue", func(w http.ResponseWriter, r *http.Request) { b.handleEnqueue(ctx, feeds, w, r) })
	mux.HandleFunc("POST /faults", b.handleFaults)
	mux.HandleFunc("POST /cut", func(w http.ResponseWriter, r *http.Request) {
		channel, err := pix.ParseChannel(r.URL.Query().Get("channel"))
		reply(w, map[string]int{"connections": b.CutConnections(channel)}, err)
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.Report(), nil) })
	mux.HandleFunc("GET /violations", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.Violations(), nil) })
	mux.HandleFunc("GET /ids", func(w http.ResponseWriter, r *http.Request) {
		channel, ispb, err := participant(r)
		if err != nil {
			reply(w, nil, err)
			return
		}
		reply(w, b.IDs(channel, ispb), nil)
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, r *http.Request) {
		channel, ispb, err := participant(r)
		if err != nil {
			reply(w, nil, err)
			return
		}
		reply(w, b.Requests(channel, ispb), nil)
	})
	return mux
}

func (b *Bank) handleEnqueue(ctx context.Context, feeds *sync.WaitGroup, w http.ResponseWriter, r *http.Request) {
	channel, ispb, err := participant(r)
	n, errN := number(r, "n", 1, strconv.Atoi)
	rate, errR := number(r, "rate", 0, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err := errors.Join(err, errN, errR); err != nil {
		reply(w, nil, err)
		return
	}
	if n < 0 || n > maxEnqueue || rate < 0 || n == 0 && rate == 0 {
		reply(w, nil, fmt.Errorf("n=%d rate=%g: want n up to %d, and a rate for n=0", n, rate, maxEnqueue))
		return
	}
	kinds := r.URL.Query()["kind"]
	if rate == 0 {
		ids, err := b.EnqueueExamples(channel, ispb, n, kinds...)
		reply(w, map[string]int{"enqueued": len(ids)}, err)
		return
	}
	// The kinds are the only thing that can be wrong with a feed.
	if _, err := b.examples.choose(kinds); err != nil {
		reply(w, nil, err)
		return
	}
	feeds.Go(func() { _ = b.Feed(ctx, channel, ispb, n, rate, kinds...) })
	reply(w, map[string]float64{"rate": rate}, nil)
}

func (b *Bank) handleFaults(w http.ResponseWriter, r *http.Request) {
	channel, err := pix.ParseChannel(r.URL.Query().Get("channel"))
	if err != nil {
		reply(w, nil, err)
		return
	}
	var faults []Fault
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&faults); err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, faults, b.SetFaults(channel, faults...))
}

func participant(r *http.Request) (pix.Channel, pix.ISPB, error) {
	channel, err := pix.ParseChannel(r.URL.Query().Get("channel"))
	if err != nil {
		return "", "", err
	}
	ispb, err := pix.ParseISPB(r.URL.Query().Get("ispb"))
	return channel, ispb, err
}

func number[T any](r *http.Request, name string, missing T, parse func(string) (T, error)) (T, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return missing, nil
	}
	v, err := parse(text)
	if err != nil {
		return missing, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The operator who left before the answer does not miss it.
	_ = json.NewEncoder(w).Encode(v)
}

// faultJSON is Fault with durations as people write them.
type faultJSON struct {
	Kinds      []Kind    `json:"kinds,omitempty"`
	Rate       float64   `json:"rate,omitempty"`
	Times      int       `json:"times,omitempty"`
	Status     int       `json:"status,omitempty"`
	RetryAfter int       `json:"retry_after,omitempty"`
	ExtraHold  duration  `json:"extra_hold,omitzero"`
	Delay      duration  `json:"delay,omitzero"`
	SlowBody   duration  `json:"slow_body,omitzero"`
	Drop       Drop      `json:"drop,omitempty"`
	Malformed  Malformed `json:"malformed,omitempty"`
}

type duration time.Duration

// MarshalText writes "250ms".
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads "250ms".
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// MarshalJSON writes the rule as /faults takes it.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultJSON{
		f.Kinds, f.Rate, f.Times, f.Status, f.RetryAfter,
		duration(f.ExtraHold), duration(f.Delay), duration(f.SlowBody), f.Drop, f.Malformed,
	})
}

// UnmarshalJSON reads a rule and refuses fields that it does not know.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var j faultJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	*f = Fault{
		j.Kinds, j.Rate, j.Times, j.Status, j.RetryAfter,
		time.Duration(j.ExtraHold), time.Duration(j.Delay), time.Duration(j.SlowBody), j.Drop, j.Malformed,
	}
	return nil
}
