package lease

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack"
	"github.com/cabine-pix/cabine/libs/devstack/devtest"
)

// serverCPU returns the CPU time in microseconds that Redis has used: it says what a script
// costs even when the machine is busy.
func serverCPU(b *testing.B, w *world) float64 {
	b.Helper()
	info, err := w.rdb.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	var sum float64
	for _, f := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, rest, _ := strings.Cut(info, f)
		var v float64
		_, err := fmt.Sscanf(rest, "%f", &v)
		require.NoError(b, err)
		sum += v
	}
	return sum * 1e6
}

func BenchmarkAcquireRelease(b *testing.B) {
	w := newWorld(b, devtest.OwnRedis(b, devstack.RedisOptions{})).settled()
	s, _ := w.replica(SetConfig{Slots: 6, Floors: icom(6, 4, 2)}, notRunning())
	b.ReportAllocs()
	before := serverCPU(b, w)
	for b.Loop() {
		l, err := s.TryAcquire(b.Context(), Poll)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((serverCPU(b, w)-before)/float64(b.N), "server-us/op")
}

func BenchmarkRenew(b *testing.B) {
	for _, sets := range []int{2, 20, 200} {
		b.Run(fmt.Sprintf("slots=%d", 6*sets), func(b *testing.B) {
			r := devtest.OwnRedis(b, devstack.RedisOptions{})
			w := newWorld(b, r).settled()
			_, k := w.replica(polls(6), notRunning())
			for i := range sets {
				w.name = fmt.Sprintf("sem:icom:{bench:%d}", i)
				w.settled()
				s, err := k.NewSet(SetConfig{Name: w.name, Slots: 6, Floors: map[Class]int{Poll: 6}})
				require.NoError(b, err)
				for range 6 {
					_, err := s.TryAcquire(b.Context(), Poll)
					require.NoError(b, err)
				}
			}
			before := serverCPU(b, w)
			for b.Loop() {
				if err := k.renewAll(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((serverCPU(b, w)-before)/float64(b.N), "server-us/op")
		})
	}
}
