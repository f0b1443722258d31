package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// childVariable makes this test binary be the service itself: replicas in tests are processes.
const childVariable = "OUTBOUND_SENDER_CHILD"

// pluginVariable is the path of the transport that TestMain built.
const pluginVariable = "OUTBOUND_SENDER_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	dir, err := os.MkdirTemp("", "outbound-sender-test-")
	if err == nil {
		err = buildPlugin(dir)
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

func buildPlugin(dir string) error {
	path := filepath.Join(dir, "transport-bacen")
	out, err := exec.Command("go", "build", "-o", path, "../../plugins/transport-bacen").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the transport: %w: %s", err, out)
	}
	return os.Setenv(pluginVariable, path)
}
