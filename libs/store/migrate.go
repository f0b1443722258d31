package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/cabine-pix/cabine/libs/store/db"
)

//go:embed migrations/*.sql
var migrations embed.FS

// codeUndefinedTable is what a database answers that was never migrated.
const codeUndefinedTable = "42P01"

// Migration is one step of the schema.
type Migration struct {
	Version int64
	// Name is the file's, e.g. "00001_inbox.sql".
	Name string
	// AppliedAt is zero while the migration is pending.
	AppliedAt time.Time
	// Took is how long the step took just now; zero in a status.
	Took time.Duration
}

// Pending reports that the migration was not applied.
func (m Migration) Pending() bool { return m.AppliedAt.IsZero() }

// Migrator changes the schema. Several may run at once: an advisory lock of the session lets one work and the others
// wait, so the connection must not go through a pooler in transaction mode.
type Migrator struct {
	sql      *sql.DB
	provider *goose.Provider
}

// OpenMigrator prepares migrations on the database at url; it does not connect yet.
func OpenMigrator(url string) (*Migrator, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("migrator config: %w", err) // pgconn leaves the password out
	}
	cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	cfg.RuntimeParams["application_name"] = "cabine-migrate"
	// A migration that must lock a busy table gives up rather than queue everybody behind it.
	cfg.RuntimeParams["lock_timeout"] = "10s"
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // every second, five minutes
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("embedded migrations: %w", err)
	}
	conn := stdlib.OpenDB(*cfg)
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded migrations: %w", err), conn.Close())
	}
	return &Migrator{sql: conn, provider: provider}, nil
}

// Close closes the connections.
func (m *Migrator) Close() error {
	if err := m.sql.Close(); err != nil {
		return fmt.Errorf("close migrator: %w", err)
	}
	return nil
}

// Status returns all migrations in order.
func (m *Migrator) Status(ctx context.Context) ([]Migration, error) {
	statuses, err := m.provider.Status(ctx)
	if err != nil {
		return nil, translate("migration status", err)
	}
	all := make([]Migration, len(statuses))
	for i, s := range statuses {
		all[i] = Migration{Version: s.Source.Version, Name: path.Base(s.Source.Path), AppliedAt: s.AppliedAt}
	}
	return all, nil
}

// Up applies what is pending, each step in its own transaction, and returns it. On an error the steps before it stand.
func (m *Migrator) Up(ctx context.Context) ([]Migration, error) {
	results, err := m.provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	return done(results), translate("migrate up", err)
}

// Down takes back up to steps migrations, newest first, and returns them. It destroys what they hold.
func (m *Migrator) Down(ctx context.Context, steps int) ([]Migration, error) {
	var undone []Migration
	for range steps {
		result, err := m.provider.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			break
		}
		if err != nil {
			return undone, translate("migrate down", err)
		}
		undone = append(undone, done([]*goose.MigrationResult{result})...)
	}
	return undone, nil
}

func done(results []*goose.MigrationResult) []Migration {
	all := make([]Migration, 0, len(results))
	for _, r := range results {
		all = append(all, Migration{Version: r.Source.Version, Name: path.Base(r.Source.Path), Took: r.Duration})
	}
	return all
}

// Migrate brings the schema at url up to this program's version.
func Migrate(ctx context.Context, url string) error {
	m, err := OpenMigrator(url)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return errors.Join(err, m.Close())
}

// checkSchema refuses a database that this program's migrations have not reached. A newer one is welcome: a deploy
// migrates first, and the old replicas go on.
func (d *DB) checkSchema(ctx context.Context) error {
	want, err := newestMigration()
	if err != nil {
		return err
	}
	return d.call(ctx, "check schema", func(ctx context.Context, conn db.DBTX) error {
		var have int64
		err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&have)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeUndefinedTable {
			err = nil
		}
		if err == nil && have < want {
			return fmt.Errorf("at version %d, want %d: %w", have, want, ErrSchema)
		}
		return err
	})
}

func newestMigration() (int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("embedded migrations: %d files: %w", len(files), err)
	}
	version, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return 0, fmt.Errorf("embedded migrations: %w", err)
	}
	return version, nil
}
