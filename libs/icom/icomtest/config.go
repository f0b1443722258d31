package icomtest

import (
	"fmt"
	"net/http"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

// CountBy says what the bank counts when it answers 429. Its staff said simultaneous
// requests, others read the manual (2.2.2.10, parallel reads) as open streams.
type CountBy string

// The two ways of counting.
const (
	ByRequests CountBy = "requests"
	ByStreams  CountBy = "streams"
)

// Config describes one bank. The zero value is a strict bank as BACEN runs it.
type Config struct {
	// Hold is how long a read waits for a message before 204. Default 5 s.
	Hold time.Duration
	// Cap is N, the most requests of one channel and ISPB that the judge tolerates at
	// once. It changes no answer. Default 6.
	Cap int
	// Limit is the most the bank serves at once before 429, counted by CountBy. Default 6.
	Limit int
	// CountBy is what Limit counts. Default ByRequests. ByStreams makes a start above
	// the limit a violation too.
	CountBy CountBy
	// RedeliverAfter is how long a stream may be idle before its unconfirmed delivery
	// returns to the queue. Default 30 s. The real value is not published.
	RedeliverAfter time.Duration
	// StreamExpiry is how long a stream may be idle before it is gone. Default 2 min.
	StreamExpiry time.Duration
	// RequestTimeout bounds the arrival of one request after its first byte (408). Default 10 s.
	RequestTimeout time.Duration
	// IdleTimeout closes a connection on which no request is in progress. Default 0: never.
	IdleTimeout time.Duration
	// MaxBody bounds a request's body, before and after decompression (413). Default 12 MiB.
	MaxBody int
	// AnswerHostPort answers 400 to a Host with a port. Default: the connection is
	// reset, as BACEN does.
	AnswerHostPort bool
	// AbsolutePullNext gives PI-Pull-Next as a whole URL instead of a path.
	AbsolutePullNext bool
	// NoGzip answers plain even when the client accepts gzip.
	NoGzip bool
	// Unmetered switches the traffic buckets off, for benchmarks.
	Unmetered bool
	// Validates makes the bank look at what participants send, after it was stored, and
	// complain with admi.002 on their read streams about XML that is not well-formed, an
	// unknown version, a wrong Fr, To or BizMsgIdr, or a missing signature.
	Validates bool
	// ForgetIDs keeps no list of message identifiers, for long benchmarks: IDs is empty then.
	ForgetIDs bool
	// Timeline is how many requests are remembered per channel and ISPB. Default 4096.
	Timeline int
	// MaxViolations is how many violations are kept in full per channel and ISPB; all
	// are counted. Default 1000.
	MaxViolations int
	// Seed feeds every random choice: identifiers, cursors, amounts, faults. Two banks
	// of one seed that run in the same minute make the same EndToEndIds. Default 1.
	Seed uint64
	// Examples is a directory of official example messages to serve. Empty, or a
	// directory that does not exist: the bank's own look-alikes.
	Examples string
	// PKI holds the certificates. Default: a new one, which costs an RSA key; tests share one.
	PKI *PKI
	// OnReceive, if set, is called with every message that a participant sent, after it
	// was stored and before the answer. It must not block for long: the request is in progress.
	OnReceive func(Received)
	// Control, if set, answers on the control port what the bank's own controls do not.
	Control http.Handler
	// AllowViolations keeps Start from failing the test that caused a violation.
	AllowViolations bool
	// Clock. Default clock.System().
	Clock clock.Clock
}

// WithDefaults returns a copy in which zero fields have their defaults.
func (c Config) WithDefaults() Config {
	def(&c.Hold, 5*time.Second)
	def(&c.Cap, 6)
	def(&c.Limit, 6)
	def(&c.CountBy, ByRequests)
	def(&c.RedeliverAfter, 30*time.Second)
	def(&c.StreamExpiry, 2*time.Minute)
	def(&c.RequestTimeout, 10*time.Second)
	def(&c.MaxBody, 12<<20)
	def(&c.Timeline, 4096)
	def(&c.MaxViolations, 1000)
	def(&c.Seed, 1)
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate names the first field that makes no sense.
func (c Config) Validate() error {
	if c.Cap < 1 || c.Limit < 1 {
		return fmt.Errorf("icomtest: cap %d and limit %d must be at least 1", c.Cap, c.Limit)
	}
	if c.CountBy != ByRequests && c.CountBy != ByStreams {
		return fmt.Errorf("icomtest: count by %q: want %q or %q", c.CountBy, ByRequests, ByStreams)
	}
	if c.Hold < 0 || c.RedeliverAfter < 0 || c.StreamExpiry < c.RedeliverAfter {
		return fmt.Errorf("icomtest: hold %s, redelivery after %s, stream expiry %s: negative or expiry too short",
			c.Hold, c.RedeliverAfter, c.StreamExpiry)
	}
	if c.MaxBody < 1 || c.Timeline < 1 || c.MaxViolations < 1 {
		return fmt.Errorf("icomtest: body limit %d, timeline %d, violations %d must be positive",
			c.MaxBody, c.Timeline, c.MaxViolations)
	}
	return nil
}

// Received is one message that a participant sent.
type Received struct {
	Channel    pix.Channel
	ISPB       pix.ISPB
	ResourceID string
	Body       []byte
}
