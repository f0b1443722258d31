package telemetry

import (
	"context"
	"io"
	"log/slog"
	"math"
)

// LogConfig says what a service's log looks like.
type LogConfig struct {
	// Level is the least level that is written: debug, info, warn or error. Default info.
	Level slog.Level
	// Service, Version and Replica are attributes of every record; empty ones are left out.
	Service, Version, Replica string
}

// New returns a logger that writes one redacted JSON object per line to w. It starts
// nothing; w must be safe for concurrent use only if others write to it too.
func New(cfg LogConfig, w io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Level})
	var attrs []slog.Attr
	for _, a := range []slog.Attr{
		slog.String("service", cfg.Service),
		slog.String("version", cfg.Version),
		slog.String("replica", cfg.Replica),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	return slog.New(NewRedactor(h.WithAttrs(attrs)))
}

// NewRedactor returns a handler that masks personal data and credentials in everything before next sees it.
func NewRedactor(next slog.Handler) slog.Handler { return redactor{next: next} }

type redactor struct {
	next slog.Handler
	// group is what the open groups' names say of everything inside them.
	group kind
}

// Enabled implements slog.Handler.
func (r redactor) Enabled(ctx context.Context, l slog.Level) bool { return r.next.Enabled(ctx, l) }

// Handle implements slog.Handler. A record with nothing to mask goes on untouched.
func (r redactor) Handle(ctx context.Context, rec slog.Record) error {
	msg := Redact(rec.Message)
	touched := msg != rec.Message
	if !touched {
		rec.Attrs(func(a slog.Attr) bool {
			_, touched = r.value(a.Key, a.Value, r.group)
			return !touched
		})
	}
	if !touched {
		return r.next.Handle(ctx, rec)
	}
	clean := slog.NewRecord(rec.Time, rec.Level, msg, rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(r.attr(a))
		return true
	})
	return r.next.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (r redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = r.attr(a)
	}
	return redactor{next: r.next.WithAttrs(clean), group: r.group}
}

// WithGroup implements slog.Handler.
func (r redactor) WithGroup(name string) slog.Handler {
	return redactor{next: r.next.WithGroup(name), group: inherit(r.group, classify(name))}
}

// inherit combines what an enclosing name and the own name say.
func inherit(outer, own kind) kind {
	if own == plain || outer == personal || outer == credential || outer == header {
		return outer
	}
	return own
}

func (r redactor) attr(a slog.Attr) slog.Attr {
	if v, touched := r.value(a.Key, a.Value, r.group); touched {
		a.Value = v
	}
	return a
}

// value returns what may be shown of v and whether that differs from v.
func (r redactor) value(key string, v slog.Value, outer kind) (slog.Value, bool) {
	if v.Kind() == slog.KindLogValuer {
		// Ask once and show that answer: a second one might differ.
		clean, _ := r.value(key, v.Resolve(), outer)
		return clean, true
	}
	k := inherit(outer, classify(key))
	switch v.Kind() {
	case slog.KindBool, slog.KindDuration, slog.KindTime:
		return v, false
	case slog.KindGroup:
		return r.members(v.Group(), k)
	default:
	}
	if k == personal || k == credential || k == header {
		if empty(v) {
			return v, false
		}
		return slog.StringValue(mask), true
	}
	switch v.Kind() {
	case slog.KindString:
		return text(v.String(), k)
	case slog.KindInt64:
		return v, masked(&v, !countable(key) && number(magnitude(v.Int64())))
	case slog.KindUint64:
		return v, masked(&v, !countable(key) && number(v.Uint64()))
	case slog.KindFloat64:
		return v, masked(&v, !countable(key) && whole(v.Float64()))
	default:
		return object(key, v.Any(), k)
	}
}

func (r redactor) members(attrs []slog.Attr, k kind) (slog.Value, bool) {
	for i, a := range attrs {
		v, touched := r.value(a.Key, a.Value, k)
		if !touched {
			continue
		}
		clean := make([]slog.Attr, len(attrs))
		copy(clean, attrs[:i])
		clean[i] = slog.Attr{Key: a.Key, Value: v}
		for j := i + 1; j < len(attrs); j++ {
			v, _ := r.value(attrs[j].Key, attrs[j].Value, k)
			clean[j] = slog.Attr{Key: attrs[j].Key, Value: v}
		}
		return slog.GroupValue(clean...), true
	}
	return slog.GroupValue(attrs...), false
}

// masked replaces *v when it is to be hidden, and says so.
func masked(v *slog.Value, hide bool) bool {
	if hide {
		*v = slog.StringValue(mask)
	}
	return hide
}

func empty(v slog.Value) bool {
	return v.Kind() == slog.KindString && v.String() == "" || v.Kind() == slog.KindAny && v.Any() == nil
}

func text(s string, k kind) (slog.Value, bool) {
	if k == keyish && evp(s) {
		return slog.StringValue(mask), true
	}
	clean := Redact(s)
	return slog.StringValue(clean), len(clean) != len(s) || clean != s
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return uint64(-n)
	}
	return uint64(n)
}

func whole(f float64) bool {
	return f == math.Trunc(f) && math.Abs(f) < 1e15 && number(uint64(math.Abs(f)))
}
