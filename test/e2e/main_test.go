package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// programsVariable is the directory of the programs that TestMain built.
const programsVariable = "CABINE_E2E_PROGRAMS"

// atOnce is how many of these tests run side by side: they wait far more than they compute.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	dir, err := os.MkdirTemp("", "cabine-e2e-")
	if err == nil && !chosen {
		err = flag.Set("test.parallel", atOnce)
	}
	if err == nil {
		err = build(dir)
	}
	code := 1
	if err == nil {
		code = devtest.Main(m, devtest.WithPostgres())
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles the programs, and once more the poller without its cap.
func build(dir string) error {
	for _, args := range [][]string{
		{"-o", dir + "/", "./services/icom-poller", "./services/migrate", "./plugins/transport-bacen"},
		{"-o", filepath.Join(dir, withoutCap), "-tags", "cabine_without_cap", "./services/icom-poller"},
	} {
		cmd := exec.Command("go", append([]string{"build"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %v: %w\n%s", args, err, out)
		}
	}
	return os.Setenv(programsVariable, dir)
}

// The programs. root is the repository, seen from this package.
const (
	root       = "../.."
	poller     = "icom-poller"
	withoutCap = "icom-poller-without-cap"
)

func program(name string) string { return filepath.Join(os.Getenv(programsVariable), name) }
