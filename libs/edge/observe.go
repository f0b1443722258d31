package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/clock"
)

// Observer logs and measures requests by their route, which is one of few, and never by what the client wrote.
type Observer struct {
	log     *slog.Logger
	clk     clock.Clock
	seconds *prometheus.HistogramVec
}

// NewObserver returns an observer and registers cabine_http_request_seconds{route, status}.
func NewObserver(clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*Observer, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cabine_http_request_seconds",
		Help:    "Time from a request's header to the end of its answer.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"route", "status"})
	if err := reg.Register(seconds); err != nil {
		return nil, fmt.Errorf("edge metrics: %w", err)
	}
	return &Observer{log: log, clk: clk, seconds: seconds}, nil
}

// seen is what is known of a request when it ends. What is inside tells what is outside through it.
type seen struct {
	route, client string
}

type seenKey struct{}

// note returns where to write down what is found out about a request.
func note(ctx context.Context) *seen {
	if s, ok := ctx.Value(seenKey{}).(*seen); ok {
		return s
	}
	return &seen{}
}

// Observe logs and measures every request. A client's fault is no error of ours: only 5xx are logged as errors.
func (o *Observer) Observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, rec, began := &seen{route: "none"}, &recorder{ResponseWriter: w}, o.clk.Now()
		defer func() {
			took := o.clk.Now().Elapsed(began)
			o.seconds.WithLabelValues(s.route, strconv.Itoa(rec.code())).Observe(took.Seconds())
			level := slog.LevelInfo
			if rec.code() >= http.StatusInternalServerError {
				level = slog.LevelError
			}
			o.log.Log(r.Context(), level, "request answered",
				"route", s.route, "status", rec.code(), "duration_us", took.Microseconds(), "answer_bytes", rec.written,
				"client", s.client, "correlation_id", CorrelationID(r.Context()))
		}()
		next.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), seenKey{}, s)))
	})
}

// Route names the handler for the log and the measurements, as "POST /v1/pix".
func Route(name string) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			note(r.Context()).route = name
			next.ServeHTTP(w, r)
		})
	}
}

// Recover answers 500 for a handler that panics and logs where. The value of the panic is logged by its type alone: it
// may hold what the client sent.
func (o *Observer) Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // the server compares the value itself
				panic(v)
			}
			o.log.ErrorContext(r.Context(), "handler panicked", "panic_type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()),
				"correlation_id", CorrelationID(r.Context()))
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			Internal().Write(w, r)
		}()
		next.ServeHTTP(w, r)
	})
}

// Limit bounds the body to bytes and the handler to d. The handler sees the end of its time in its context; how long
// the body may take to arrive is the server's ReadTimeout.
func Limit(bytes int64, d time.Duration) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > bytes {
				w.Header().Set("Connection", "close")
				TooLarge(bytes).Write(w, r)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), d)
			defer cancel()
			r.Body = http.MaxBytesReader(w, r.Body, bytes)
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status  int
	written int64
}

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.written += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
