package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// childVariable makes this test binary be the service itself: replicas in tests are processes.
const childVariable = "OUTBOUND_SENDER_CHILD"

// What TestMain built, by the variables that name their paths: the transport, and the service with which the permits are shared.
const (
	pluginVariable = "OUTBOUND_SENDER_TEST_PLUGIN"
	pollerVariable = "OUTBOUND_SENDER_TEST_POLLER"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	dir, err := os.MkdirTemp("", "outbound-sender-test-")
	if err == nil {
		err = errors.Join(build(dir, "../../plugins/transport-bacen", pluginVariable), build(dir, "../icom-poller", pollerVariable))
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

// build builds a program and names its path in a variable.
func build(dir, program, variable string) error {
	path := filepath.Join(dir, filepath.Base(program))
	out, err := exec.Command("go", "build", "-o", path, program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w: %s", program, err, out)
	}
	return os.Setenv(variable, path)
}
