package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"os"
	"slices"

	hclog "github.com/hashicorp/go-hclog"
)

// Logger returns the logger that a plugin uses: JSON lines on standard error, which the
// host turns back into records of its own log. Make it before Serve, which redirects
// standard error.
func Logger(level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// Limits on what a process can make the host log with one line.
const (
	maxLineBytes = 16 << 10
	maxLineAttrs = 32
)

// relay logs what a process writes to standard error, line by line, until r ends.
// go-plugin would do it too, and lets a line that only looks like its own end the host.
func relay(r io.Reader, log *slog.Logger) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	for {
		line, cut, err := in.ReadLine()
		if err != nil {
			return
		}
		relayLine(line, log)
		for cut && err == nil { // the rest of a line that is too long
			_, cut, err = in.ReadLine()
		}
	}
}

func relayLine(line []byte, log *slog.Logger) {
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		// Not from the plugin's logger: the runtime's last words, or a library's.
		log.Warn("transport process", "message", clean(string(line)))
		return
	}
	level := slog.LevelInfo
	if text, ok := fields[slog.LevelKey].(string); ok {
		_ = level.UnmarshalText([]byte(text)) // an unknown level stays info
	}
	message, _ := fields[slog.MessageKey].(string)
	delete(fields, slog.LevelKey)
	delete(fields, slog.MessageKey)
	delete(fields, slog.TimeKey)
	attrs := []slog.Attr{slog.String("message", clean(message))}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if len(attrs) > maxLineAttrs {
			break
		}
		attrs = append(attrs, slog.String(clean(name), clean(fmt.Sprint(fields[name]))))
	}
	log.LogAttrs(context.Background(), level, "transport process", attrs...)
}

// bridge is a slog.Logger in hclog's clothes; hclog appears nowhere else.
type bridge struct {
	log  *slog.Logger
	name string
	args []any
}

func newBridge(log *slog.Logger) hclog.Logger { return &bridge{log: log} }

func levelOf(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func (b *bridge) Log(level hclog.Level, msg string, args ...any) {
	l := levelOf(level)
	if !b.log.Enabled(context.Background(), l) {
		return
	}
	b.log.Log(context.Background(), l, "transport process", append([]any{"message", clean(msg)}, args...)...)
}

func (b *bridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }
func (b *bridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }
func (b *bridge) Info(msg string, args ...any)  { b.Log(hclog.Info, msg, args...) }
func (b *bridge) Warn(msg string, args ...any)  { b.Log(hclog.Warn, msg, args...) }
func (b *bridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

func (b *bridge) enabled(l hclog.Level) bool {
	return b.log.Enabled(context.Background(), levelOf(l))
}

func (b *bridge) IsTrace() bool { return b.enabled(hclog.Trace) }
func (b *bridge) IsDebug() bool { return b.enabled(hclog.Debug) }
func (b *bridge) IsInfo() bool  { return b.enabled(hclog.Info) }
func (b *bridge) IsWarn() bool  { return b.enabled(hclog.Warn) }
func (b *bridge) IsError() bool { return b.enabled(hclog.Error) }

func (b *bridge) ImpliedArgs() []any { return b.args }

func (b *bridge) With(args ...any) hclog.Logger {
	return &bridge{log: b.log.With(args...), name: b.name, args: append(append([]any{}, b.args...), args...)}
}

func (b *bridge) Name() string { return b.name }

// Named keeps the name only for go-plugin, which asks for it: the host's logger says already whose line it is.
func (b *bridge) Named(name string) hclog.Logger {
	return &bridge{log: b.log, name: name, args: b.args}
}

func (b *bridge) ResetNamed(name string) hclog.Logger { return b.Named(name) }

// SetLevel does nothing: the level is the slog handler's.
func (b *bridge) SetLevel(hclog.Level) {}

func (b *bridge) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if b.enabled(l) {
			return l
		}
	}
	return hclog.Error
}

func (b *bridge) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(b.StandardWriter(opts), "", 0)
}

func (b *bridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{b} }

type lineWriter struct{ b *bridge }

func (w lineWriter) Write(p []byte) (int, error) {
	w.b.Info(string(bytes.TrimSpace(p)))
	return len(p), nil
}
