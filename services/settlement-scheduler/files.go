package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bucket"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/fileimport"
)

// FilesConfig says where the bank's files are. fileimport.Config and bucket.Config say more of each value.
type FilesConfig struct {
	// Bucket is file:///directory or s3://name?region=...&prefix=...; every replica sees the same. Default none: no files are
	// imported.
	Bucket string `koanf:"bucket" help:"arquivos de extrato e liquidação: file:///diretório ou s3://nome?region=...&prefix=...; vazio: não importa"`
	// Scratch is a directory with room for the largest archive. Default: the machine's for temporary files.
	Scratch  string        `koanf:"scratch" help:"diretório para a cópia local do arquivo em mãos; vazio: o do sistema"`
	Every    time.Duration `koanf:"every" help:"período da busca por arquivos novos (líder)"`
	MaxSize  int64         `koanf:"max_size" help:"tamanho máximo de um arquivo ZIP, em bytes"`
	MaxText  int64         `koanf:"max_text" help:"tamanho máximo do texto dentro do ZIP, em bytes"`
	Expected time.Duration `koanf:"expected" help:"tempo máximo entre o fim do período de um extrato e a importação do próximo; depois disso está em atraso"`
}

func defaultFiles() FilesConfig {
	i := fileimport.Config{}.WithDefaults()
	return FilesConfig{Every: i.Every, MaxSize: i.MaxSize, MaxText: i.MaxText, Expected: i.Expected}
}

func (c FilesConfig) bucket() bucket.Config { return bucket.Config{URL: c.Bucket, Scratch: c.Scratch} }

func (c Config) fileImport() fileimport.Config {
	return fileimport.Config{
		Leadership: c.leadership(), ISPB: pix.ISPB(c.ICOM.ISPB), Every: c.Files.Every, MaxSize: c.Files.MaxSize, MaxText: c.Files.MaxText,
		Expected: c.Files.Expected,
	}
}

// Validate names what does not fit of the place itself.
func (c FilesConfig) Validate() error {
	if c.Bucket == "" {
		return nil
	}
	if err := c.bucket().WithDefaults().Validate(); err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	return nil
}

// newBucket returns where the bank's files are; nil: nowhere. It is opened at its first use and ends with the process.
func newBucket(cfg Config) (*bucket.Bucket, error) {
	if cfg.Files.Bucket == "" {
		return nil, nil
	}
	b, err := bucket.New(cfg.Files.bucket())
	return b, core.Misconfigured(err)
}

func newImporter(
	cfg Config, b *bucket.Bucket, db *store.DB, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*fileimport.Importer, error) {
	deps := fileimport.Deps{Files: store.NewFiles(db), Clock: clk, Log: log, Metrics: reg}
	if b != nil {
		deps.Bucket = b
	}
	i, err := fileimport.New(cfg.fileImport(), deps)
	return i, core.Misconfigured(err)
}
