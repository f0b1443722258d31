package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/singleton"
)

// Only turns are told, and an older term ends the loop.
func TestRepeatTellsTurnsAndEndsWithItsTerm(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	steps := []error{nil, broken, broken, nil, nil, broken, fmt.Errorf("write: %w", store.ErrStaleTerm)}
	var told []error
	taken := 0
	err := singleton.Repeat(t.Context(), clock.System(), time.Microsecond, func(context.Context) error {
		taken++
		return steps[taken-1]
	}, func(err error) { told = append(told, err) })
	require.ErrorIs(t, err, store.ErrStaleTerm)
	require.Equal(t, len(steps), taken)
	require.Equal(t, []error{broken, nil, broken}, told)
}

// The end of ctx is the end, and no failure.
func TestRepeatEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := singleton.Repeat(ctx, clock.System(), time.Hour, func(context.Context) error {
		cancel()
		return errors.New("cut")
	}, func(error) { t.Error("told of its own end") })
	require.ErrorIs(t, err, context.Canceled)
}
