package signature

import (
	"os"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }
