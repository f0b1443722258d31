package store_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/store"
)

// BenchmarkReceive measures what stands between two reads of the bank: one batch of ten
// messages of 4 KB, durable, by one slot and by six at once. One operation is one batch.
func BenchmarkReceive(b *testing.B) {
	for _, slots := range []int{1, 6} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			s := setup(b)
			work := perSlot(b, s, slots)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range slots {
				wg.Go(func() {
					for range b.N/slots + 1 {
						stored, err := fresh(s.inbox.Receive(b.Context(), work[i].next()))
						if err != nil || len(stored) != 10 {
							b.Errorf("stored %d: %v", len(stored), err)
							return
						}
						work[i].ids = append(work[i].ids, rowIDs(stored)...)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkMarks measures what follows, beside the reads: publication and completion of ten messages.
func BenchmarkMarks(b *testing.B) {
	s := setup(b)
	slot := perSlot(b, s, 1)[0]
	var ids [][]int64
	var keys [][]string
	for range b.N {
		stored, err := fresh(s.inbox.Receive(b.Context(), slot.next()))
		require.NoError(b, err)
		ids, keys = append(ids, rowIDs(stored)), append(keys, messageIDs(stored))
	}
	source := store.Source(slot.session.Channel, slot.session.ISPB)
	mark := func(name string, call func(ctx context.Context, i int) error) {
		start := time.Now()
		for i := range b.N {
			require.NoError(b, call(b.Context(), i))
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N), name)
	}
	b.ResetTimer()
	mark("us/published", func(ctx context.Context, i int) error { return s.inbox.MarkPublished(ctx, ids[i]) })
	mark("us/done", func(ctx context.Context, i int) error {
		_, err := s.inbox.MarkDone(ctx, keys[i], source)
		return err
	})
}

// reader makes the batches that one slot would read.
type reader struct {
	session store.Session
	payload []byte
	random  *rand.Rand
	ids     []int64
}

func perSlot(b *testing.B, s bundle, slots int) []*reader {
	b.Helper()
	readers := make([]*reader, slots)
	for i := range readers {
		readers[i] = &reader{
			session: s.open(b, i+1, "bench"), payload: envelope(4096),
			random: rand.New(rand.NewPCG(1, uint64(i))),
		}
	}
	return readers
}

func (r *reader) next() store.Batch {
	batch := store.Batch{Session: r.session, NextCursor: "/api/v1/out/12345678/stream/0a1b2c3d", Arrivals: make([]store.Arrival, 10)}
	for i := range batch.Arrivals {
		batch.Arrivals[i] = store.Arrival{MessageID: r.resourceID(), MsgType: "pacs.008", Payload: r.payload}
	}
	return batch
}

// resourceID has the layout of the bank's: "PI", six bytes of milliseconds, sixteen random ones, in Base64.
func (r *reader) resourceID() string {
	id := make([]byte, 0, 24)
	id = binary.BigEndian.AppendUint64(id, uint64(time.Now().UnixMilli()))
	id[0], id[1] = 'P', 'I'
	id = binary.BigEndian.AppendUint64(id, r.random.Uint64())
	id = binary.BigEndian.AppendUint64(id, r.random.Uint64())
	return base64.StdEncoding.EncodeToString(id)
}

// envelope is like a signed message: most of it markup that repeats, the rest certificate and digests that do not.
func envelope(size int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var out []byte
	for i := 0; len(out) < size*2/3; i++ {
		out = fmt.Appendf(out, "<CdtTrfTxInf><PmtId><EndToEndId>E123456782026%019d</EndToEndId></PmtId></CdtTrfTxInf>", random.Uint32())
	}
	for len(out) < size {
		out = append(out, base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, random.Uint64()))...)
	}
	return out[:size]
}
