package inbound_test

import (
	"os"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m, devtest.WithPostgres())) }
