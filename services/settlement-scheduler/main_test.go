package main

import (
	"os"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// childVariable makes this test binary be the service itself: replicas that are killed or paused are processes.
const childVariable = "SETTLEMENT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	os.Exit(devtest.Main(m, devtest.WithPostgres()))
}
