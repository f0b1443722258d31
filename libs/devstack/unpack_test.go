//go:build install

package devstack

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// unpackVariable tells this test binary that it is the child of TestUnpackWithoutRoot.
const unpackVariable = "DEVSTACK_TEST_UNPACK"

// TestUnpackChild is no test of its own: it runs as a user without rights, without servers on its machine.
func TestUnpackChild(t *testing.T) { //nolint:paralleltest // as a child it is the only one
	scratch := os.Getenv(unpackVariable)
	if scratch == "" {
		return // run as a test: nothing to do
	}
	require.NotZero(t, os.Geteuid())
	f := newFinder(os.Stderr, scratch)
	f.system = filepath.Join(scratch, "nothing")
	dir, lock, err := newRunDir(scratch)
	require.NoError(t, err)
	s := &Stack{finder: f, progress: io.Discard, base: scratch, dir: dir, lock: lock}
	redis, err := s.StartRedis(t.Context(), RedisOptions{})
	require.NoError(t, err)
	postgres, err := s.StartPostgres(t.Context(), PostgresOptions{})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(redis.programs.dir, f.cache), redis.programs.dir)
	require.True(t, strings.HasPrefix(postgres.programs.dir, f.cache), postgres.programs.dir)
	require.NoError(t, postgres.CreateDatabase(t.Context(), "there"))
	said, err := s.XMLLint(t.Context(), "--version")
	require.NoError(t, err)
	require.Contains(t, said, "libxml")
	token, err := s.SoftHSM(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(token.Module, f.cache), token.Module)
	require.NoError(t, s.Stop())
	fmt.Println("UNPACKED AND RUN")
}

// TestUnpackWithoutRoot is the whole way of a user who may not install: this test binary runs again as nobody, with an
// empty HOME and a PATH that has apt and no server, fetches the Debian packages and runs both servers from them.
func TestUnpackWithoutRoot(t *testing.T) {
	t.Parallel()
	scratch, err := os.MkdirTemp("", "devstack-unpack-") //nolint:usetesting // that of testing is private
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(scratch)) })
	path := filepath.Join(scratch, "path")
	require.NoError(t, os.Mkdir(path, 0o755))
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb", "sh", "tar", "rm"} {
		found, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(found, filepath.Join(path, tool)))
	}
	binary := filepath.Join(scratch, "devstack.test") // go test keeps its own where only we can read
	syscall.ForkLock.RLock()                          // a process forked while the file is open for writing would keep it from being run
	require.NoError(t, copyFile(os.Args[0], binary))
	syscall.ForkLock.RUnlock()
	require.NoError(t, os.Chmod(binary, 0o755))

	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestUnpackChild$", "-test.v")
	cmd.Dir = scratch
	cmd.Env = []string{"HOME=" + scratch, "TMPDIR=" + scratch, "PATH=" + path, unpackVariable + "=" + scratch}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	require.NoError(t, os.Chmod(scratch, 0o755))
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		uid, err := strconv.Atoi(nobody.Uid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(scratch, uid, uid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "UNPACKED AND RUN")
}
