package pix_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/pix"
)

// The whole table: a row is where a payment stands, its text what may follow.
func TestLegalMoves(t *testing.T) {
	t.Parallel()
	legal := map[pix.State][]pix.State{
		pix.Created:  {pix.Sent, pix.Unknown, pix.Settled, pix.Rejected},
		pix.Sent:     {pix.Settled, pix.Rejected},
		pix.Unknown:  {pix.Sent, pix.Settled, pix.Rejected},
		pix.Accepted: {pix.Settled, pix.Rejected},
		pix.Settled:  nil,
		pix.Rejected: nil,
	}
	require.Len(t, legal, len(pix.States()))
	for _, from := range pix.States() {
		require.Equal(t, legal[from], from.Next())
		require.Equal(t, len(legal[from]) == 0, from.Final(), from)
		may := make(map[pix.State]bool)
		for _, to := range legal[from] {
			may[to] = true
		}
		for _, to := range pix.States() {
			require.Equal(t, may[to], from.May(to), "%s -> %s", from, to)
		}
	}
	require.Empty(t, pix.State("other").Next())
	require.False(t, pix.State("other").Final())
}

// From everywhere a final state is one move away, and no walk comes back: a payment ends.
func TestEveryStateEnds(t *testing.T) {
	t.Parallel()
	var walk func(s pix.State, visited map[pix.State]bool)
	walk = func(s pix.State, visited map[pix.State]bool) {
		require.False(t, visited[s], "%s comes back", s)
		visited[s] = true
		defer delete(visited, s)
		if s.Final() {
			return
		}
		require.True(t, s.May(pix.Settled) && s.May(pix.Rejected), s)
		for _, next := range s.Next() {
			walk(next, visited)
		}
	}
	for _, s := range pix.States() {
		walk(s, map[pix.State]bool{})
	}
}

func TestStatesAreParsed(t *testing.T) {
	t.Parallel()
	for _, s := range pix.States() {
		got, err := pix.ParseState(string(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	for _, bad := range []string{"", "Created", "created ", "done"} {
		_, err := pix.ParseState(bad)
		require.Error(t, err)
	}
}

// FuzzState: one of the six, or an error.
func FuzzState(f *testing.F) {
	for _, s := range pix.States() {
		f.Add(string(s))
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := pix.ParseState(s)
		if err != nil {
			require.Empty(t, got)
			require.Less(t, len(err.Error()), 300)
			return
		}
		require.Contains(t, pix.States(), got)
	})
}
