package robustness_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// programsVariable is the directory of the programs that TestMain built.
const programsVariable = "CABINE_ROBUSTNESS_PROGRAMS"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cabine-robustness-")
	if err == nil {
		err = build(dir)
	}
	code := 1
	if err == nil {
		code = devtest.Main(m)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles the programs, without the race detector: they are what runs in production.
func build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir+"/", "./services/icom-poller", "./services/payments", "./services/outbound-sender",
		"./services/migrate", "./plugins/transport-bacen", "./tools/bacen-sim", "./tools/core-sim")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return os.Setenv(programsVariable, dir)
}

func program(name string) string { return filepath.Join(os.Getenv(programsVariable), name) }
