package core

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/telemetry"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/libs/transport/plugin"
)

// TransportConfig says which executable carries the requests to the bank.
type TransportConfig struct {
	// Plugin is bacen, onz, or the path of an executable. A name stands for
	// transport-<name> in Dir. Default bacen.
	Plugin string `koanf:"plugin" help:"bacen, onz ou o caminho de um executável"`
	// Dir is where named plugins are. Default: the directory of this executable.
	Dir string `koanf:"dir" help:"diretório dos plugins; vazio: o deste executável"`
	// SHA256 of the executable, in hexadecimal. Default: not checked.
	SHA256 string `koanf:"sha256" help:"SHA-256 que o executável deve ter"`
	// Args of the executable. No secrets: every user of the machine sees them.
	Args []string `koanf:"args" help:"argumentos do plugin (sem segredos)"`
	// Env is the plugin's whole environment: it inherits nothing. Secrets go in files
	// that it names. In the environment: NAME=value,NAME=value.
	Env map[string]string `koanf:"env" help:"ambiente do plugin, que não herda nada"`
	// SocketDir holds the socket between both processes. Default: the system's temporary directory.
	SocketDir string `koanf:"socket_dir" help:"diretório do socket entre os processos"`
}

// DefaultTransport returns the defaults.
func DefaultTransport() TransportConfig { return TransportConfig{Plugin: "bacen"} }

// host returns the library's form of c.
func (c TransportConfig) host() (plugin.HostConfig, error) {
	path := c.Plugin
	if !strings.ContainsRune(path, filepath.Separator) {
		dir := c.Dir
		if dir == "" {
			self, err := os.Executable()
			if err != nil {
				return plugin.HostConfig{}, fmt.Errorf("transport.dir: %w", err)
			}
			dir = filepath.Dir(self)
		}
		path = filepath.Join(dir, "transport-"+path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return plugin.HostConfig{}, fmt.Errorf("transport.plugin: %w", err)
	}
	cfg := plugin.HostConfig{Path: path, Args: c.Args, SHA256: c.SHA256, SocketDir: c.SocketDir}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		cfg.Env = append(cfg.Env, name+"="+c.Env[name])
	}
	return cfg.WithDefaults(), nil
}

// Validate names every value that does not fit, a plugin that is not there included.
func (c TransportConfig) Validate() error {
	if c.Plugin == "" {
		return errors.New("transport.plugin is empty, want bacen, onz or a path")
	}
	cfg, err := c.host()
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if info, err := os.Stat(cfg.Path); err != nil {
		return fmt.Errorf("transport.plugin: %w", err)
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("transport.plugin: %s is no executable", cfg.Path)
	}
	return nil
}

// Transport provides the transport.Transport, and the *plugin.Host behind it.
func Transport(cfg TransportConfig) fx.Option {
	return fx.Module("transport", fx.Provide(
		func(r *Runner, h *telemetry.Health, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer) (*plugin.Host, error) {
			hc, err := cfg.host()
			if err != nil {
				return nil, Misconfigured(err)
			}
			host, err := plugin.New(hc, clk, log, reg)
			if err != nil {
				return nil, Misconfigured(err)
			}
			h.AddReady("transport process", time.Second, host.Await)
			r.Add(Part{
				Name: "transport process", Stage: Carrying, Budget: hc.StopGrace + time.Second,
				Run: host.Run,
			})
			return host, nil
		},
		func(h *plugin.Host) transport.Transport { return h },
	))
}
