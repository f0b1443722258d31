package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Token is what clients of the payments' API show.
const Token = "stage-token-0123456789-0123456789"

// coreKeyID names the key that the services and the core banking share.
const coreKeyID = "k1"

// StartCore starts the participant's core banking. args are further flags of core-sim.
func (p *Participant) StartCore(args ...string) error {
	s := p.stage
	if err := os.WriteFile(p.coreKey(), []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // read to its line
	name := "core-" + string(p.ISPB)
	log, err := s.cfg.Logs.Open(name)
	if err != nil {
		return err
	}
	args = append([]string{"--key-file", p.coreKey(), "--key-id", coreKeyID}, args...)
	if p.core, err = Start(name, s.program("core-sim"), args, environ(), log, func([]byte) {}, in); err != nil {
		return err
	}
	_ = in.Close()
	if err := out.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(out, 1<<16)).Decode(&p.where); err != nil {
		return fmt.Errorf("core-sim: %w", err)
	}
	return nil
}

func (p *Participant) coreKey() string {
	return filepath.Join(p.stage.dir, "core-"+string(p.ISPB)+".key")
}

// Payments starts a replica of payments, which needs StartCore before. It returns once the replica's API listens, with
// the base of its URLs; more as in Poller.
func (p *Participant) Payments(ctx context.Context, name string, line func([]byte), more map[string]any) (*Process, string, error) {
	listens := make(chan string, 1)
	watch := func(b []byte) {
		var said struct {
			Msg     string `json:"msg"`
			Address string `json:"address"`
		}
		if json.Unmarshal(b, &said) == nil && said.Msg == "api listens" {
			listens <- "http://" + said.Address
		}
		line(b)
	}
	settings := map[string]any{
		"lease": nil, "redis": nil, "transport": nil, "icom": map[string]any{"ispb": p.ISPB},
		"api":       map[string]any{"listen": "127.0.0.1:0", "tokens": "stage=" + Token},
		"throttle":  map[string]any{"disabled": true},
		"core":      map[string]any{"url": p.where.URL, "key_id": coreKeyID, "key_file": p.coreKey()},
		"signature": map[string]any{"spi_certificates": p.stage.ready.SPI},
	}
	for k, v := range more {
		settings[k] = v
	}
	proc, err := p.start("payments", name, watch, settings)
	if err != nil {
		return nil, "", err
	}
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case base := <-listens:
		return proc, base, nil
	case <-proc.Done():
		return nil, "", fmt.Errorf("%s: %w", name, errors.Join(proc.Err(), errors.New("terminou ao iniciar")))
	case <-timer.C:
		return nil, "", errors.Join(fmt.Errorf("%s não escutou em 30s", name), proc.Stop(time.Second))
	case <-ctx.Done():
		return nil, "", errors.Join(ctx.Err(), proc.Stop(time.Second))
	}
}

// Sender starts a replica of the outbound-sender; more as in Poller.
func (p *Participant) Sender(name string, line func([]byte), more map[string]any) (*Process, error) {
	files := p.stage.ready.Signatures[p.ISPB]
	settings := map[string]any{
		"signature": map[string]any{"key_file": files.Key, "certificate_file": files.Certificate},
	}
	for k, v := range more {
		settings[k] = v
	}
	return p.start("outbound-sender", name, line, settings)
}

// Scheduler starts a replica of the settlement-scheduler, which needs Config.Settlement; more as in Poller. With the SPI
// behind the bank it can be told to reconcile: every hour, and whenever somebody asks for a period.
func (p *Participant) Scheduler(name string, line func([]byte), more map[string]any) (*Process, error) {
	settings := map[string]any{"transport": nil}
	if host := p.stage.FilesURL(); host != "" {
		bucket := filepath.Join(p.stage.dir, "files-"+string(p.ISPB))
		if err := os.MkdirAll(bucket, 0o700); err != nil {
			return nil, err
		}
		files := p.Files()
		settings["files"] = map[string]any{"bucket": "file://" + bucket, "every": "300ms"}
		settings["reconciliation"] = map[string]any{
			"files_url": host, "server_name": "localhost", "cert_file": files.Cert, "key_file": files.Key, "ca_file": files.CA,
			"grace": "1s", "look": "300ms", "answer_within": "20s",
			// What settled within it before the end of a period is left to the next one, and a demo has one; cycles take longer to close.
			"tolerance": "200ms",
		}
	}
	for k, v := range more {
		settings[k] = v
	}
	return p.start("settlement-scheduler", name, line, settings)
}

// Exec runs SQL in the participant's database, for what no service would do.
func (p *Participant) Exec(ctx context.Context, sql string) error {
	return p.stage.Stack.Postgres.Exec(ctx, databaseOf(p.ISPB), sql)
}
