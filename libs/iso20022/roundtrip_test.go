package iso20022_test

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
)

// What is built is read again as it was, with and without a signature, and is built again to the same bytes.
func TestBuiltIsRead(t *testing.T) {
	t.Parallel()
	s, v := sampler{devtest.Rand(t)}, iso20022.DefaultVersions()
	for range 50 {
		for _, m := range s.all() {
			built := m.build(t)
			want := iso20022.Envelope{Header: m.header, Document: m.document}
			got, err := v.Parse(built)
			require.NoError(t, err, "%s", built)
			require.Equal(t, want, got)
			again, err := v.Build(got.Header, got.Document)
			require.NoError(t, err)
			require.Equal(t, string(built), string(again))

			want.Signed = true
			got, err = v.Parse(signed(built, signature))
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, iso20022.Validate(withoutSPI(m)))
		}
	}
}

// Building only reads: the race detector watches two at once.
func TestADocumentMayBeBuiltTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, m := range fixed(5).all() {
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				if _, err := iso20022.DefaultVersions().Build(m.header, m.document); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
}

// withoutSPI is the sample's document if a participant may send it, something harmless otherwise.
func withoutSPI(m sample) iso20022.Document {
	if m.header.From == bankA || m.header.From == bankB {
		return m.document
	}
	return &iso20022.Pibr001{Data: "ping"}
}

// Operations wait in tables as JSON.
func TestJSONChangesNothing(t *testing.T) {
	t.Parallel()
	s := sampler{devtest.Rand(t)}
	for range 50 {
		for _, m := range s.all() {
			text, err := json.Marshal(m.document)
			require.NoError(t, err)
			back, ok := reflect.New(reflect.TypeOf(m.document).Elem()).Interface().(iso20022.Document)
			require.True(t, ok)
			require.NoError(t, json.Unmarshal(text, back))
			require.Equal(t, m.document, back)
		}
		text, err := json.Marshal(s.all()[0].header)
		require.NoError(t, err)
		require.Contains(t, string(text), `"msg_id":"M12345678`)
	}
}

func TestInstantsAreCutToMillisecondsInUTC(t *testing.T) {
	t.Parallel()
	m := fixed(1).all()[6]
	m.header.Created = time.Date(2026, 1, 31, 21, 59, 58, 999_999_999, time.FixedZone("BRT", -3*60*60))
	got, err := iso20022.DefaultVersions().Parse(m.build(t))
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 2, 1, 0, 59, 58, 999_000_000, time.UTC), got.Header.Created)
}

func TestTextsSurvive(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"]]>", "<![CDATA[x]]>", "&amp;", "&lt;b&gt;", " around ", "\t\n\r\r\n", "<script>", "😀", "e\u0301", "\u00a0", "\ufffd", "\u0085\u2028", `"'`,
	} {
		m := fixed(1).all()[6]
		m.document = &iso20022.Pibr001{Data: text}
		got, err := iso20022.DefaultVersions().Parse(m.build(t))
		require.NoError(t, err)
		require.Equal(t, m.document, got.Document)
	}
}

func TestTruncatedFits(t *testing.T) {
	t.Parallel()
	long := fixed(2).from("aç€😀", 3000)
	m := iso20022.Admi002{Ref: long, Reason: long, Location: long, Description: long, Data: long}
	require.Error(t, iso20022.Validate(&m))
	short := m.Truncated()
	require.NoError(t, iso20022.Validate(&short))
	require.Len(t, []rune(short.Data), 1000)
	require.Equal(t, short, short.Truncated())
}
