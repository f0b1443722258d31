package core_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// sampleBinary is the path of testdata/sample, built by TestMain once for all tests.
var sampleBinary string

func TestMain(m *testing.M) { os.Exit(withSample(m)) }

func withSample(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cabine-sample")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	sampleBinary = filepath.Join(dir, "sample")
	build := exec.Command("go", "build", "-o", sampleBinary, "./testdata/sample")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the sample: %v\n%s", err, out)
		return 1
	}
	return devtest.Main(m, devtest.WithRedis(), devtest.WithPostgres(), devtest.WithNATS())
}
