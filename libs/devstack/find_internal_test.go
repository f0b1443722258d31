package devstack

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// script writes an executable shell script.
func script(t *testing.T, path, body string) {
	t.Helper()
	// A process forked meanwhile would hold the file open for writing, and the kernel runs no such file.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

// bareFinder finds nothing: its PATH and its system are empty directories, and it may not install.
func bareFinder(t *testing.T) finder {
	t.Helper()
	dir := t.TempDir()
	return finder{progress: io.Discard, base: dir, path: filepath.Join(dir, "path"), system: filepath.Join(dir, "system")}
}

func TestFindTakesTheFirstThatIsNewEnough(t *testing.T) {
	t.Parallel()
	f := bareFinder(t)
	old, fit := filepath.Join(f.base, "old"), filepath.Join(f.base, "fit")
	script(t, filepath.Join(old, "redis-server"), "echo Redis server v=6.2.14 sha=0")
	script(t, filepath.Join(fit, "redis-server"), "echo Redis server v=7.0.15 sha=0")
	f.path = old + ":" + fit
	found, err := f.find(t.Context(), redisSoftware())
	require.NoError(t, err)
	require.Equal(t, programs{dir: fit, version: version{7, 0}}, found)

	f.path = old
	_, err = f.find(t.Context(), redisSoftware())
	require.ErrorContains(t, err, "6.2, older than 7.0")
}

func TestFindTakesTheNewestOfDebiansDirectories(t *testing.T) {
	t.Parallel()
	f := bareFinder(t)
	for _, v := range []string{"9", "15", "14"} {
		dir := filepath.Join(f.system, "usr/lib/postgresql", v, "bin")
		script(t, filepath.Join(dir, "postgres"), "echo postgres '(PostgreSQL)' "+v+".3")
		script(t, filepath.Join(dir, "initdb"), "")
	}
	found, err := f.find(t.Context(), postgresSoftware())
	require.NoError(t, err)
	require.Equal(t, version{15, 3}, found.version)
}

func TestFindReadsTheVersionOfXMLLint(t *testing.T) {
	t.Parallel()
	f := bareFinder(t)
	script(t, filepath.Join(f.path, "xmllint"), "echo xmllint: using libxml version 20914 >&2")
	found, err := f.find(t.Context(), xmllintSoftware())
	require.NoError(t, err)
	require.Equal(t, version{2, 9}, found.version)

	script(t, filepath.Join(f.path, "xmllint"), "echo xmllint: using libxml version 21400 >&2")
	found, err = f.find(t.Context(), xmllintSoftware())
	require.NoError(t, err)
	require.Equal(t, version{2, 14}, found.version)
}

func TestFindFollowsLinksToWhereTheOtherProgramsLie(t *testing.T) {
	t.Parallel()
	f := bareFinder(t)
	real := filepath.Join(f.base, "real")
	script(t, filepath.Join(real, "postgres"), "echo postgres '(PostgreSQL)' 16.1")
	script(t, filepath.Join(real, "initdb"), "")
	require.NoError(t, os.Mkdir(f.path, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(real, "postgres"), filepath.Join(f.path, "postgres")))
	found, err := f.find(t.Context(), postgresSoftware())
	require.NoError(t, err)
	require.Equal(t, real, found.dir)
}

func TestMissingSaysWhatIsMissingAndWhatWasTried(t *testing.T) {
	t.Parallel()
	f := bareFinder(t)
	_, err := f.find(t.Context(), redisSoftware())
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "Redis 7.0 or later", missing.Software)
	require.ErrorContains(t, err, "PATH has no redis-server")
	require.ErrorContains(t, err, "set HOME", "no cache directory: nowhere to unpack to")

	broken := bareFinder(t)
	script(t, filepath.Join(broken.path, "redis-server"), "echo libjemalloc.so.2: cannot open; exit 127")
	_, err = broken.find(t.Context(), redisSoftware())
	require.ErrorContains(t, err, "libjemalloc.so.2")
}
