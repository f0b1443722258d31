package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	pluginrunner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/transport"
)

// What ended a process, for the log and the metric.
const (
	endStart  = "start"
	endExit   = "exit"
	endBroken = "broken"
	endSilent = "silent"
	endStop   = "stop"
)

// process is one running transport process and the connection to it.
type process struct {
	*client
	cfg    HostConfig
	run    *runner
	plugin *goplugin.Client
	conn   *grpc.ClientConn
}

// launch starts a process and returns when it answers. On an error nothing of it is left.
func launch(ctx context.Context, cfg HostConfig, clk clock.Clock, log *slog.Logger) (*process, error) {
	p := &process{cfg: cfg, run: newRunner(cfg, clk, log)}
	p.plugin = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake(),
		VersionedPlugins: clientSets(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     cfg.StartTimeout,
		Logger:           newBridge(log),
		GRPCDialOptions:  dialOptions(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: cfg.SocketDir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (pluginrunner.Runner, error) {
			p.run.env = cmd.Env
			return p.run, nil
		},
	})
	// go-plugin's own steps take no context; the end of the process ends each of them.
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.run.kill() })
	defer stop()
	if err := p.connect(ctx, clk); err != nil {
		return nil, errors.Join(fmt.Errorf("start transport process: %w", err), p.end(endStart))
	}
	return p, nil
}

func (p *process) connect(ctx context.Context, clk clock.Clock) error {
	protocol, err := p.plugin.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(serviceName)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("dispensed a %T", raw)
	}
	p.conn, p.client = conn, newClient(conn, clk)
	return p.ping(ctx)
}

func (p *process) ping(ctx context.Context) error {
	out, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	if err != nil {
		return err
	}
	if s := out.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("health is %v", s)
	}
	return nil
}

// alive reports whether the process has not been reaped.
func (p *process) alive() bool {
	select {
	case <-p.run.gone:
		return false
	default:
		return true
	}
}

// watch returns when the process cannot be used any more, or ctx ends, and says why.
func (p *process) watch(ctx context.Context) string {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan string, 2)
	watchers := 0
	for cause, lost := range map[string]func(context.Context) bool{endBroken: p.broken, endSilent: p.silent} {
		watchers++
		go func() {
			if lost(ctx) {
				found <- cause
				return
			}
			found <- ""
		}()
	}
	defer func() {
		for range watchers {
			<-found
		}
	}()
	defer cancel()
	select {
	case <-p.run.gone:
		return endExit
	case cause := <-found:
		watchers--
		if cause == "" {
			return endStop
		}
		return p.orExit(cause)
	case <-ctx.Done():
		return endStop
	}
}

// orExit waits a moment for the exit of which a broken connection is usually the first sign.
func (p *process) orExit(cause string) string {
	t := time.NewTimer(p.cfg.AnswerSlack)
	defer t.Stop()
	select {
	case <-p.run.gone:
		return endExit
	case <-t.C:
		return cause
	}
}

// broken returns true when the connection is lost, false when ctx ends first.
func (p *process) broken(ctx context.Context) bool {
	for state := p.conn.GetState(); state == connectivity.Ready; state = p.conn.GetState() {
		if !p.conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return ctx.Err() == nil
}

// silent returns true when the process has not answered for SilenceLimit, false when
// ctx ends first. The limit runs on Go's own clock, which stands still with the
// machine: a suspended machine has not been silent.
func (p *process) silent(ctx context.Context) bool {
	for {
		ask, cancel := context.WithTimeout(ctx, p.cfg.SilenceLimit)
		err := p.ping(ask)
		cancel()
		if err != nil {
			return ctx.Err() == nil
		}
		t := time.NewTimer(p.cfg.PingInterval)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// end leaves nothing of the process. Only a process that is stopped on purpose is
// asked first, and for StopGrace at most.
func (p *process) end(cause string) error {
	grace := time.Duration(0)
	if cause == endStop {
		grace = p.cfg.StopGrace
	}
	var killErr error
	if grace == 0 {
		killErr = p.run.kill()
	}
	t := time.AfterFunc(grace, func() { _ = p.run.kill() })
	defer t.Stop()
	p.plugin.Kill()
	return killErr
}

// lost completes the error of a call that brought no answer. Where the process was
// merely too slow nobody knows what it may still do; where the connection broke the
// process is of no use, and its end is a bound.
func (p *process) lost(e *transport.Error, tooSlow bool) *transport.Error {
	if !tooSlow {
		_ = p.run.kill() // a process that cannot be killed has no end to report
		t := time.NewTimer(p.cfg.AnswerSlack)
		defer t.Stop()
		select {
		case <-p.run.gone:
		case <-t.C:
		}
	}
	if p.alive() {
		return e
	}
	return p.departed()
}

// departed is the error of every call that relied on a process which is gone.
func (p *process) departed() *transport.Error {
	return &transport.Error{
		Kind:      transport.PluginGone,
		LastWrite: p.run.reaped,
		Reason:    "the transport process that held the slot's connection has ended",
	}
}
