package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/leader"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/reconciliation"
)

// ReconciliationConfig says how our books are compared with the bank's account. reconciliation.Config and HostConfig say more
// of each value.
type ReconciliationConfig struct {
	// FilesURL is the bank's file host, https. Default none: books are not reconciled.
	FilesURL string `koanf:"files_url" help:"host de arquivos do BACEN, https://host[:porta]; vazio: não concilia"`
	// ServerName of its certificate. Default the URL's host.
	ServerName string `koanf:"server_name" help:"nome no certificado do host de arquivos; vazio: o da URL"`
	// CertFile, KeyFile and CAFile are the participant's client certificate and the host's authorities, as for the ICOM.
	CertFile string `koanf:"cert_file" help:"certificado de cliente do participante em PEM"`
	KeyFile  string `koanf:"key_file" help:"chave do certificado de cliente em PEM"`
	CAFile   string `koanf:"ca_file" help:"certificados de CA do host de arquivos em PEM"`
	// Mode is observe or active. Default observe.
	Mode string `koanf:"mode" help:"observe: só lista o que difere; active: consulta o SPI sobre cada linha e resolve"`
	// Release names what was deployed: another one reconciles at once. Default the program's version, which is the same for
	// all builds that the go command does not know the revision of.
	Release string `koanf:"release" help:"nome do que foi implantado (ex.: a imagem); ao mudar, concilia na hora; vazio: a versão do programa"`
	// Channel carries the questions. Default cpm.
	Channel string `koanf:"channel" help:"canal das consultas (camt.060): cpm ou csm"`
	// The others are those of reconciliation.Config.
	Every        time.Duration `koanf:"every" help:"período conciliado de cada vez"`
	Grace        time.Duration `koanf:"grace" help:"espera mínima após o fim do período"`
	Look         time.Duration `koanf:"look" help:"período da verificação (líder)"`
	AnswerWithin time.Duration `koanf:"answer_within" help:"espera pela resposta do SPI até perguntar de novo"`
	FetchWithin  time.Duration `koanf:"fetch_within" help:"espera pelo host de arquivos até perguntar de novo"`
	ImportWithin time.Duration `koanf:"import_within" help:"espera pela importação do arquivo até perguntar de novo"`
	Asks         int           `koanf:"asks" help:"perguntas por período, no máximo"`
	EntryAgain   time.Duration `koanf:"entry_again" help:"espera até consultar de novo a mesma linha (active)"`
	EntriesAt    int           `koanf:"entries_at_once" help:"linhas consultadas por verificação, no máximo (active)"`
	EntriesMost  int           `koanf:"entries_most" help:"com tantas linhas abertas nenhuma é consultada (active)"`
	Tolerance    time.Duration `koanf:"tolerance" help:"diferença de horário de liquidação que não conta"`
}

const (
	observe = "observe"
	active  = "active"
)

func defaultReconciliation() ReconciliationConfig {
	r := reconciliation.Config{}.WithDefaults()
	return ReconciliationConfig{
		Mode: observe, Channel: string(r.Channel), Every: r.Every, Grace: r.Grace, Look: r.Look, AnswerWithin: r.AnswerWithin,
		FetchWithin: r.FetchWithin, ImportWithin: r.ImportWithin, Asks: r.Asks, EntryAgain: r.EntryAgain, EntriesAt: r.EntriesAtOnce,
		EntriesMost: r.EntriesMost, Tolerance: r.Tolerance,
	}
}

func (c Config) reconciliation(version string) reconciliation.Config {
	r := c.Reconciliation
	return reconciliation.Config{
		Leadership: c.leadership(), ISPB: pix.ISPB(c.ICOM.ISPB), Version: cmp.Or(r.Release, version), Channel: pix.Channel(r.Channel), Active: r.Mode == active,
		Every: r.Every, Grace: r.Grace, Look: r.Look, AnswerWithin: r.AnswerWithin, FetchWithin: r.FetchWithin, ImportWithin: r.ImportWithin,
		Asks: r.Asks, EntryAgain: r.EntryAgain, EntriesAtOnce: r.EntriesAt, EntriesMost: r.EntriesMost, Tolerance: r.Tolerance,
		Scratch: c.Files.Scratch, MaxText: c.Files.MaxText,
	}
}

func (c Config) fileHost() reconciliation.HostConfig {
	r := c.Reconciliation
	return reconciliation.HostConfig{
		URL: r.FilesURL, ServerName: r.ServerName, CertFile: r.CertFile, KeyFile: r.KeyFile, CAFile: r.CAFile, MaxBytes: c.Files.MaxSize,
	}
}

// validateReconciliation names what does not fit, if books are reconciled at all.
func (c Config) validateReconciliation() error {
	if c.Reconciliation.FilesURL == "" {
		return nil
	}
	errs := []error{c.reconciliation("any").WithDefaults().Validate(), c.fileHost().WithDefaults().Validate()}
	if mode := c.Reconciliation.Mode; mode != observe && mode != active {
		errs = append(errs, fmt.Errorf("mode is %q, want %s or %s", mode, observe, active))
	}
	if c.Files.Bucket == "" {
		errs = append(errs, errors.New("files_url without files.bucket: what is fetched could not be imported"))
	}
	return errors.Join(errs...)
}

// newReconciler returns who compares; nil: nobody does.
func newReconciler(
	cfg Config, id core.Identity, b *bucket.Bucket, db *store.DB, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*reconciliation.Reconciler, error) {
	if cfg.Reconciliation.FilesURL == "" {
		log.Warn("books are not reconciled with the bank's account: reconciliation.files_url is empty")
		return nil, nil
	}
	host, err := reconciliation.NewHost(cfg.fileHost(), clk)
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	days, err := calendar.New(cfg.Cycles.Holidays...)
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	r, err := reconciliation.New(cfg.reconciliation(id.Version), reconciliation.Deps{
		Books: store.NewReconciliations(db), Files: store.NewFiles(db), Host: host, Bucket: b, Days: days, Clock: clk, Log: log, Metrics: reg,
	})
	return r, core.Misconfigured(err)
}

// reconciling is the leader's child, if there is one.
func reconciling(r *reconciliation.Reconciler) []leader.Child {
	if r == nil {
		return nil
	}
	return []leader.Child{{Name: "reconciliation", Run: r.Run}}
}
