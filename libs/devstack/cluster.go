package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// layOutCluster gives the server an empty cluster: a copy of one that initdb made once per version and user. A copy
// takes a tenth of the time of initdb.
func (s *Stack) layOutCluster(ctx context.Context, p *Postgres) error {
	template := filepath.Join(s.base, fmt.Sprintf("postgres-%s-%d", p.programs.version, p.user.id()))
	if err := s.makeTemplate(ctx, p, template); err != nil {
		return err
	}
	return copyTree(template, p.data(), p.user)
}

// makeTemplate runs initdb unless another stack has done so. The template appears under its name only when complete.
func (s *Stack) makeTemplate(ctx context.Context, p *Postgres, template string) (err error) {
	lock, err := lockFile(template + ".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := os.Stat(template); err == nil {
		return nil
	}
	defer step(s.progress, "making a PostgreSQL cluster to copy from")()

	making := template + ".making"
	if err := os.RemoveAll(making); err != nil {
		return fmt.Errorf("devstack: remove unfinished cluster: %w", err)
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return fmt.Errorf("devstack: make cluster directory: %w", err)
	}
	if err := p.user.chown(making); err != nil {
		return err
	}
	proc, err := startProcess(command{
		path: p.programs.path("initdb"),
		args: []string{
			"--pgdata", making, "--username", pgUser, "--auth", "trust", "--encoding", "UTF8", "--locale", "C",
			"--no-sync", "--no-instructions", // the copy is synced by the server that uses it
		},
		dir: making, env: p.programs.env(), log: filepath.Join(s.dir, "initdb.log"), user: p.user, death: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("devstack: wait for initdb: %w", context.Cause(ctx)), proc.kill())
	}
	// A cluster is complete when it has its control file and initdb is gone: initdb removes a failed one itself.
	if _, err := os.Stat(filepath.Join(making, "global", "pg_control")); err != nil {
		return fmt.Errorf("devstack: initdb failed:\n%s", tail(proc.log))
	}
	if err := os.Rename(making, template); err != nil {
		return fmt.Errorf("devstack: name finished cluster: %w", err)
	}
	return nil
}

// copyTree copies directories and regular files, which is all that a cluster consists of, and gives them to user.
func copyTree(from, to string, user *account) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
		} else if err := copyFile(path, target); err != nil {
			return err
		}
		return user.chown(target)
	})
	if err != nil {
		return fmt.Errorf("devstack: copy cluster: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// reachable checks that user can pass through every directory above dir, which PostgreSQL would report as a bare
// "permission denied" of a path that looks fine.
func reachable(dir string, user *account) error {
	if user == nil {
		return nil
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("devstack: check directory: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("devstack: user %s, whom PostgreSQL runs as, cannot pass through %s: "+
				"set TMPDIR to a directory that everybody can reach", user.name, dir)
		}
	}
	return nil
}
