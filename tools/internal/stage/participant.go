package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// Participant is one institution with services of its own. It shares the bank, the Redis and the PostgreSQL server
// with the others, and neither database nor bus.
type Participant struct {
	// ISPB names it.
	ISPB pix.ISPB
	// DB is the services' database, NATS their bus.
	DB   *store.DB
	NATS *devstack.NATS

	stage *Stage
	dsn   string
	core  *Process
	where struct { // of the core banking
		URL string `json:"url"`
	}
}

func databaseOf(ispb pix.ISPB) string { return "cabine_" + string(ispb) }

func (p *Participant) migrate(ctx context.Context) error {
	name := databaseOf(p.ISPB)
	if err := p.stage.Stack.Postgres.CreateDatabase(ctx, name); err != nil {
		return err
	}
	p.dsn = p.stage.Stack.Postgres.DSN(name)
	cmd := exec.CommandContext(ctx, p.stage.program("migrate"), "up")
	cmd.Env = environ("DATABASE_URL="+p.dsn, "NATS_URL="+p.NATS.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	var err error
	p.DB, err = store.Open(ctx, store.Config{URL: p.dsn, Application: "stage"})
	return err
}

func (p *Participant) close() error {
	if p.DB != nil {
		p.DB.Close()
	}
	if p.core == nil {
		return nil
	}
	return p.core.Stop(5 * time.Second)
}

// Files returns the participant's certificate at the bank.
func (p *Participant) Files() icomtest.Files { return p.stage.ready.Clients[p.ISPB] }

// Poller starts a replica of the icom-poller; each line of its log goes to line. more are
// settings over those of the stage, by section.
func (p *Participant) Poller(name string, line func([]byte), more map[string]any) (*Process, error) {
	return p.start("icom-poller", name, line, more)
}

// start runs a replica of a service.
func (p *Participant) start(service, name string, line func([]byte), more map[string]any) (*Process, error) {
	path, err := p.config(name, more)
	if err != nil {
		return nil, err
	}
	log, err := p.stage.cfg.Logs.Open(name)
	if err != nil {
		return nil, err
	}
	return Start(name, p.stage.program(service), []string{"--config", path}, environ(), log, line, nil)
}

// config writes what a replica is told. JSON is YAML.
func (p *Participant) config(name string, more map[string]any) (string, error) {
	s := p.stage
	host, port, err := net.SplitHostPort(s.Stack.Redis.Addr())
	if err != nil {
		return "", err
	}
	files := p.Files()
	bacen := filepath.Join(s.dir, "bacen-"+string(p.ISPB)+".json")
	err = writeJSON(bacen, map[string]any{
		"channels": map[string]any{
			"cpm": map[string]any{"url": "https://" + s.ready.CPM, "server_name": "localhost"},
			"csm": map[string]any{"url": "https://" + s.ready.CSM, "server_name": "localhost"},
		},
		"ca":           files.CA,
		"user_timeout": userTimeout,
		"participants": map[string]any{string(p.ISPB): map[string]any{"cert": files.Cert, "key": files.Key}},
	})
	if err != nil {
		return "", err
	}
	settings := map[string]any{
		"replica":  name,
		"admin":    map[string]any{"listen": "127.0.0.1:0"},
		"icom":     map[string]any{"ispb": p.ISPB, "max_slots": s.cfg.MaxSlots},
		"lease":    timing(),
		"redis":    map[string]any{"host": host, "port": json.Number(port), "timeout": "500ms"},
		"postgres": map[string]any{"url": p.dsn},
		"nats":     map[string]any{"url": p.NATS.URL()},
		"transport": map[string]any{
			"plugin": s.program("transport-bacen"), "env": map[string]any{"CABINE_BACEN": bacen},
		},
	}
	for section, v := range more {
		if v == nil {
			delete(settings, section)
			continue
		}
		settings[section] = v
	}
	path := filepath.Join(s.dir, name+".yaml")
	return path, writeJSON(path, settings)
}
