package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	runPrefix = "run-"
	lockName  = "lock"
)

// newRunDir makes the directory of one stack under base and locks it for as long as this process lives. The lock is
// what tells a stack in use from one whose process was killed: the kernel gives it up with the process.
func newRunDir(base string) (string, *os.File, error) {
	if err := makeBase(base); err != nil {
		return "", nil, err
	}
	// Sweeping and making are one step under a lock: nobody may sweep a directory that is made but not locked yet.
	guard, err := lockFile(filepath.Join(base, "sweep.lock"))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = guard.Close() }() // closing gives the lock up; there is nothing to flush
	sweep(base)

	dir, err := os.MkdirTemp(base, runPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("devstack: make directory: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", nil, fmt.Errorf("devstack: open directory to the servers' user: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return "", nil, err
	}
	return dir, lock, nil
}

// makeBase makes the directory that all stacks of this user share, and refuses one that somebody else made.
func makeBase(base string) error {
	if err := os.MkdirAll(base, 0o711); err != nil {
		return fmt.Errorf("devstack: make base directory: %w", err)
	}
	info, err := os.Stat(base)
	if err != nil {
		return fmt.Errorf("devstack: base directory: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("devstack: base directory %s belongs to user %d, not to us (%d): remove it or set TMPDIR",
			base, stat.Uid, os.Geteuid())
	}
	return nil
}

// lockFile opens path and waits for its exclusive lock, which Close or the end of the process gives up.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devstack: open lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("devstack: lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// sweep removes the directories of stacks whose process is gone, and ends what may still run in them. What it cannot
// remove stays for the next time: a leftover is no reason to refuse a start.
func sweep(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, runPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if inUse(dir) {
			continue
		}
		killIn(dir)
		_ = os.RemoveAll(dir)
	}
}

// inUse reports whether a living process holds the lock of a stack's directory.
func inUse(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// killIn ends the processes whose working directory lies in dir. Servers work in their own directory, so this finds
// them, and the children that PostgreSQL forked, whatever their process group. It returns how many there were.
func killIn(dir string) (found int) {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return 0
	}
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(cwd, dir+string(filepath.Separator)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
			found++
		}
	}
	return found
}
