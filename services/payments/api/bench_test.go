package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/store"
)

// BenchmarkOrders takes orders through the whole handler, 16 clients at once, on a real PostgreSQL.
func BenchmarkOrders(b *testing.B) {
	w := newWorld(b)
	w.announced = make(chan store.Operation, b.N+1)
	body := order(nil)
	var n atomic.Int64
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/pix", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+coreToken)
			r.Header.Set(edge.KeyHeader, fmt.Sprint("k", n.Add(1)))
			answer := httptest.NewRecorder()
			w.handler.ServeHTTP(answer, r)
			if answer.Code != http.StatusCreated {
				b.Error(answer.Code, answer.Body)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
	require.Len(b, w.announced, b.N)
}
