package devstack_test

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func ownerOf(t *testing.T, info fs.FileInfo) uint32 {
	t.Helper()
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return stat.Uid
}
