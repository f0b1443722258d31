package devstack_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
)

// childVariable tells this test binary that it is a child, started to hold a stack and be killed. Its value is the base
// directory.
const childVariable = "DEVSTACK_TEST_CHILD"

// TestChild is no test of its own: it is the process that the tests below kill.
func TestChild(t *testing.T) { //nolint:paralleltest // as a child it is the only one
	base := os.Getenv(childVariable)
	if base == "" {
		return // run as a test: nothing to hold
	}
	stack, err := devstack.Start(t.Context(), devstack.Options{Postgres: true, Redis: true, Dir: base})
	require.NoError(t, err)
	fmt.Println("READY", stack.Dir(), stack.Postgres.PID(), stack.Redis.PID())
	if os.Getenv("DEVSTACK_TEST_PANIC") != "" {
		go panic("as a test may")
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until killed
}

// startChild starts a process that holds a stack, and returns the stack's directory and its servers.
func startChild(t *testing.T, base string, env ...string) (cmd *exec.Cmd, dir string, servers []int) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(append(os.Environ(), childVariable+"="+base), env...)
	cmd.Stderr = os.Stderr
	if len(env) > 0 {
		cmd.Stderr = nil // the panic is meant
	}
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 4 || fields[0] != "READY" {
			continue
		}
		for _, field := range fields[2:] {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			servers = append(servers, pid)
		}
		return cmd, fields[1], servers
	}
	t.Fatal("the child did not start its servers")
	return nil, "", nil
}

func TestNoServerOutlivesItsParent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end func(*testing.T, *exec.Cmd)
		env []string
	}{
		"SIGKILL": {end: func(t *testing.T, cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) }},
		"panic":   {end: func(*testing.T, *exec.Cmd) {}, env: []string{"DEVSTACK_TEST_PANIC=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := openDir(t)
			cmd, dir, servers := startChild(t, base, test.env...)
			test.end(t, cmd)
			require.Error(t, cmd.Wait())
			for _, pid := range servers {
				require.Eventually(t, func() bool { return stateOf(t, pid) == "" }, wait, tick, "process %d", pid)
			}
			require.DirExists(t, dir, "nobody was left to remove it")

			next, err := devstack.Start(t.Context(), devstack.Options{Dir: base})
			require.NoError(t, err)
			require.NoDirExists(t, dir, "the next start does")
			require.NoError(t, next.Stop())
		})
	}
}

func TestCtrlCStopsAndRemoves(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	// The child's own TestMain holds a stack too; on a signal that one is stopped, and the kernel ends the other.
	cmd, _, servers := startChild(t, base, "TMPDIR="+base)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.ErrorContains(t, cmd.Wait(), "exit status 130")
	for _, pid := range servers {
		require.Eventually(t, func() bool { return stateOf(t, pid) == "" }, wait, tick, "process %d", pid)
	}
	left, err := filepath.Glob(filepath.Join(base, "*", "run-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStackInUseIsNotSwept(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	first, err := devstack.Start(t.Context(), devstack.Options{Dir: base})
	require.NoError(t, err)
	second, err := devstack.Start(t.Context(), devstack.Options{Dir: base})
	require.NoError(t, err)
	require.DirExists(t, first.Dir())
	require.NoError(t, second.Stop())
	require.NoError(t, first.Stop())
}

// openDir is a temporary directory that the user postgres can pass through; those of testing are private.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devstack-test-") //nolint:usetesting // that of testing is private
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir
}

func TestUnreachableDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		require.NotZero(t, os.Geteuid(), "only a stack of root runs PostgreSQL as somebody else")
		return
	}
	base := filepath.Join(openDir(t), "private")
	require.NoError(t, os.Mkdir(base, 0o700))
	_, err := devstack.Start(t.Context(), devstack.Options{Postgres: true, Dir: base})
	require.ErrorContains(t, err, base)
	require.ErrorContains(t, err, "TMPDIR")
}
