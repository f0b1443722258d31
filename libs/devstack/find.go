package devstack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// software is a server, or a program, that is looked for on the machine and installed when it is not there.
type software struct {
	name     string // in messages
	server   string // program whose --version is asked
	reads    func(said string) (version, bool)
	programs []string // all must lie in one directory
	atLeast  version
	places   string   // glob of directories of the system beside PATH
	packages []string // Debian packages that bring it
	unpacked string   // glob of its directory below the directory that the packages are unpacked into
}

func redisSoftware() software {
	return software{
		name: "Redis", server: "redis-server", reads: parseVersion, programs: []string{"redis-server"}, atLeast: version{7, 0},
		packages: []string{"redis-server", "redis-tools"}, unpacked: "usr/bin",
	}
}

func postgresSoftware() software {
	return software{
		name: "PostgreSQL", server: "postgres", reads: parseVersion, programs: []string{"postgres", "initdb"}, atLeast: version{14, 0},
		places: "usr/lib/postgresql/*/bin", packages: []string{"postgresql"}, unpacked: "usr/lib/postgresql/*/bin",
	}
}

// version is major and minor.
type version [2]int

func (v version) String() string        { return fmt.Sprintf("%d.%d", v[0], v[1]) }
func (v version) before(w version) bool { return slices.Compare(v[:], w[:]) < 0 }
func parseVersion(text string) (version, bool) {
	found := regexp.MustCompile(`(\d+)\.(\d+)`).FindStringSubmatch(text)
	if found == nil {
		return version{}, false
	}
	major, errMajor := strconv.Atoi(found[1])
	minor, errMinor := strconv.Atoi(found[2])
	return version{major, minor}, errMajor == nil && errMinor == nil
}

// programs is where a piece of software was found.
type programs struct {
	dir     string  // of its programs
	libs    string  // LD_LIBRARY_PATH, "" for what is installed in the system
	version version // as the server says
}

func (p programs) path(program string) string { return filepath.Join(p.dir, program) }

// env is the whole environment of a server: nothing of ours leaks into it. GMT needs no time zone files.
func (p programs) env() []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=GMT"}
	if p.libs != "" {
		env = append(env, "LD_LIBRARY_PATH="+p.libs)
	}
	return env
}

// finder looks for software and installs it. Its fields are what tests replace.
type finder struct {
	progress io.Writer
	base     string // for the lock
	path     string // like $PATH
	system   string // where Debian's directories begin: "/"
	cache    string // for unpacked packages; "" when the user has no cache directory
	root     bool
}

func newFinder(progress io.Writer, base string) finder {
	f := finder{progress: progress, base: base, path: os.Getenv("PATH"), system: "/", root: os.Geteuid() == 0}
	if dir, err := os.UserCacheDir(); err == nil {
		f.cache = filepath.Join(dir, "cabine")
	}
	return f
}

// MissingError says that a server is not on this machine and could not be brought here, and what was tried.
type MissingError struct {
	// Software is the name and the oldest version that will do.
	Software string
	// Tried has one line for each place and way that was tried.
	Tried []string
}

// Error names what is missing, what was tried and what a person can do.
func (e *MissingError) Error() string {
	return fmt.Sprintf("devstack: %s is missing; install it so that its programs are in PATH. What was tried:\n  - %s",
		e.Software, strings.Join(e.Tried, "\n  - "))
}

// find returns where the software is, installing it first when it must.
func (f finder) find(ctx context.Context, sw software) (programs, error) {
	if found, _ := f.look(ctx, sw); found != nil {
		return *found, nil
	}
	// One process installs, the others find what it installed.
	lock, err := lockFile(filepath.Join(f.base, "install.lock"))
	if err != nil {
		return programs{}, err
	}
	defer func() { _ = lock.Close() }() // closing gives the lock up; there is nothing to flush
	found, tried := f.look(ctx, sw)
	if found != nil {
		return *found, nil
	}
	install := f.unpack
	if f.root {
		install = f.install
	}
	if err := install(ctx, sw); err != nil {
		tried = append(tried, err.Error())
	} else {
		f.path += string(filepath.ListSeparator) + filepath.Join(f.system, "usr/bin") // should PATH lack it
		if found, tried = f.look(ctx, sw); found != nil {
			return *found, nil
		}
	}
	return programs{}, &MissingError{Software: fmt.Sprintf("%s %s or later", sw.name, sw.atLeast), Tried: tried}
}

// look returns the first place that has the software in a version that will do, and what is wrong with the others.
func (f finder) look(ctx context.Context, sw software) (*programs, []string) {
	tried := []string{"PATH has no " + strings.Join(sw.programs, " and ")}
	for _, place := range f.candidates(sw) {
		out, err := run(ctx, place.env(), place.path(sw.server), "--version")
		found, ok := sw.reads(out)
		switch {
		case err != nil:
			tried = append(tried, err.Error())
		case !ok:
			tried = append(tried, fmt.Sprintf("%s says no version: %q", place.path(sw.server), out))
		case found.before(sw.atLeast):
			tried = append(tried, fmt.Sprintf("%s is %s, older than %s", place.path(sw.server), found, sw.atLeast))
		default:
			place.version = found
			return &place, nil
		}
	}
	return nil, tried
}

// candidates lists the directories that hold all programs of sw: those of PATH, then the newest of Debian's, then what
// was unpacked into the cache.
func (f finder) candidates(sw software) []programs {
	var found []programs
	add := func(dir, libs string) {
		for _, name := range sw.programs {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				return
			}
		}
		found = append(found, programs{dir: dir, libs: libs})
	}
	for _, dir := range filepath.SplitList(f.path) {
		// PostgreSQL finds its files from where its program really lies, so links are followed first.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, sw.server)); err == nil && len(sw.programs) > 1 {
			dir = filepath.Dir(real)
		}
		add(dir, "")
	}
	for _, dir := range newestFirst(filepath.Join(f.system, sw.places)) {
		add(dir, "")
	}
	if f.cache != "" {
		root := f.unpackedRoot(sw)
		for _, dir := range newestFirst(filepath.Join(root, sw.unpacked)) {
			add(dir, libraryPath(root))
		}
	}
	return found
}

// newestFirst expands a glob whose matches differ by a version number.
func newestFirst(glob string) []string {
	dirs, err := filepath.Glob(glob)
	if err != nil {
		return nil
	}
	number := regexp.MustCompile(`/(\d+)/bin$`)
	major := func(dir string) int {
		if m := number.FindStringSubmatch(dir); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits only
			return n
		}
		return 0
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return major(b) - major(a) })
	return dirs
}

// run executes a program to its end and returns what it said. The error carries the end of that.
func run(ctx context.Context, env []string, path string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &out
	cmd.WaitDelay = killWait
	if err := cmd.Run(); err != nil {
		said := strings.Split(strings.TrimSpace(out.String()), "\n")
		return out.String(), fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err,
			strings.Join(said[max(0, len(said)-5):], "; "))
	}
	return strings.TrimSpace(out.String()), nil
}
