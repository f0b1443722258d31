package tidy

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the repository, seen from this package.
const root = "../.."

// TestRepository holds the repository to every rule.
func TestRepository(t *testing.T) {
	t.Parallel()
	tree, err := Load(os.DirFS(root))
	require.NoError(t, err)
	packages, err := List(t.Context(), root)
	require.NoError(t, err)
	require.NotEmpty(t, packages)

	found := slices.Concat(
		checkImports(packages), checkLengths(tree), checkNames(tree), checkCalls(tree), checkWords(tree),
		checkModules(tree), checkLinks(tree), checkCommands(tree), checkChangelog(tree),
	)
	for _, f := range excuse(found, exceptions()) {
		t.Error(f)
	}
}
