package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// unpack brings software without root: the Debian packages and whatever of their dependencies is not installed are
// downloaded and laid out in the user's cache directory, and their programs run from there.
func (f finder) unpack(ctx context.Context, sw software) error {
	if f.cache == "" {
		return errors.New("it cannot be unpacked: no cache directory, set HOME or XDG_CACHE_HOME")
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("it cannot be unpacked from a Debian package: this machine has no %s", tool)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installLimit,
		fmt.Errorf("unpacking %s took longer than %s", sw.name, installLimit))
	defer cancel()
	defer step(f.progress, "unpacking "+sw.name+" from Debian packages into "+f.cache)()

	work := f.unpackedRoot(sw) + ".work"
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(f.unpackedRoot(sw))); err != nil {
		return fmt.Errorf("clear the cache: %w", err)
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // a leftover is cleared by the next try

	if err := f.fetchAndLayOut(ctx, sw, work); err != nil {
		return fmt.Errorf("unpack without root: %w", err)
	}
	if err := os.Rename(filepath.Join(work, "root"), f.unpackedRoot(sw)); err != nil {
		return fmt.Errorf("finish unpacking: %w", err)
	}
	return nil
}

// unpackedRoot is the directory that plays "/" for unpacked software.
func (f finder) unpackedRoot(sw software) string {
	return filepath.Join(f.cache, strings.ToLower(sw.name))
}

// fetchAndLayOut downloads into work and unpacks into work/root. The system's package lists are tried first; when they
// are missing or old, lists of our own are fetched.
func (f finder) fetchAndLayOut(ctx context.Context, sw software, work string) error {
	apt := aptDir{lists: "", cache: filepath.Join(work, "apt-cache"), debs: filepath.Join(work, "debs")}
	if err := apt.make(); err != nil {
		return err
	}
	err := apt.download(ctx, sw.packages)
	if err != nil {
		apt.lists = filepath.Join(work, "apt-lists")
		if err := apt.make(); err != nil {
			return err
		}
		if _, err := run(ctx, aptEnv(), "apt-get", append(apt.options(), "update")...); err != nil {
			return err
		}
		if err := apt.download(ctx, sw.packages); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(apt.debs, "*.deb"))
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	for _, deb := range debs {
		if _, err := run(ctx, aptEnv(), "dpkg", "-x", deb, filepath.Join(work, "root")); err != nil {
			return err
		}
	}
	return nil
}

// aptDir are directories that apt may write to without root.
type aptDir struct {
	lists string // "": the system's
	cache string
	debs  string
}

func (a aptDir) make() error {
	for _, dir := range []string{a.lists, a.cache, a.debs} {
		if dir == "" {
			continue
		}
		for _, sub := range []string{"", "partial", "archives/partial"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				return fmt.Errorf("make directory for apt: %w", err)
			}
		}
	}
	return nil
}

func (a aptDir) options() []string {
	options := []string{"-o", "Dir::Cache=" + a.cache, "-o", "Debug::NoLocking=true"}
	if a.lists != "" {
		options = append(options, "-o", "Dir::State::lists="+a.lists)
	}
	return options
}

// download fetches the packages, installed or not, and those of their dependencies that are not installed.
func (a aptDir) download(ctx context.Context, packages []string) error {
	names, err := a.resolve(ctx, packages)
	if err != nil {
		return err
	}
	args := append([]string{"-c", `cd "$1" && shift && exec apt-get "$@"`, "sh", a.debs}, a.options()...)
	args = append(append(args, "download"), names...) // download writes into the working directory
	_, err = run(ctx, aptEnv(), "sh", args...)
	return err
}

// resolve lists the packages to download.
func (a aptDir) resolve(ctx context.Context, packages []string) ([]string, error) {
	names := append([]string{}, packages...)
	// postgresql is an empty package that depends on the current postgresql-<major>, which is the one to have.
	versioned := regexp.MustCompile(`(?m)^\s*Depends: (postgresql-\d+)$`)
	for _, name := range packages {
		out, err := run(ctx, aptEnv(), "apt-cache", append(a.options(), "depends", name)...)
		if err != nil {
			return nil, err
		}
		for _, found := range versioned.FindAllStringSubmatch(out, -1) {
			names = append(names, found[1])
		}
	}
	args := append(a.options(), "--simulate", "--no-install-recommends", "install")
	out, err := run(ctx, aptEnv(), "apt-get", append(args, names...)...)
	if err != nil {
		return nil, err
	}
	for _, found := range regexp.MustCompile(`(?m)^Inst (\S+) `).FindAllStringSubmatch(out, -1) {
		// LLVM is 100 MB and serves PostgreSQL's just-in-time compiler alone, which the stack switches off.
		if !strings.HasPrefix(found[1], "libllvm") && !slices.Contains(names, found[1]) {
			names = append(names, found[1])
		}
	}
	return names, nil
}

// libraryPath lists the directories of shared libraries below an unpacked root.
func libraryPath(root string) string {
	var dirs []string
	for _, glob := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib/postgresql/*/lib"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err == nil {
			dirs = append(dirs, found...)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
