package devtest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// roleVariable tells this test binary which child of TestMainJudges it is.
const roleVariable = "DEVTEST_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "excused" {
		os.Exit(devtest.Main(m, devtest.WithLeaks(
			goleak.IgnoreAnyFunction("github.com/cabine-pix/cabine/libs/devstack/devtest_test.leak"))))
	}
	os.Exit(devtest.Main(m))
}

func leak() { select {} }

// TestChild is no test of its own: it does what its role says.
func TestChild(t *testing.T) { //nolint:paralleltest // as a child it is the only one
	switch os.Getenv(roleVariable) {
	case "": // run as a test: nothing to do
	case "leaking", "excused":
		go leak()
	case "failing":
		t.Fatal("as told")
	case "without Redis":
		devtest.Redis(t)
	case "without PostgreSQL":
		devtest.Postgres(t)
	case "without NATS":
		devtest.NATS(t)
	case "seeded":
		require.Equal(t, uint64(0x9e89c2ade4a6b4c2), devtest.Rand(t).Uint64())
	}
}

func TestMainJudges(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{
		"leaking":            "goroutines are left after the tests",
		"failing":            "as told",
		"excused":            "",
		"seeded":             "",
		"without Redis":      "devtest.WithRedis()",
		"without PostgreSQL": "devtest.WithPostgres()",
		"without NATS":       "devtest.WithNATS()",
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
			cmd.Env = append(os.Environ(), roleVariable+"="+role, devtest.SeedVariable+"=42")
			out, err := cmd.CombinedOutput()
			if want == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.ErrorContains(t, err, "exit status 1")
			require.Contains(t, string(out), want)
		})
	}
}
