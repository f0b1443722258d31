package iso20022_test

import (
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
)

// The largest group that is allowed, read and built, and read by the standard library into nothing for comparison.
func BenchmarkPacs008Of10(b *testing.B) {
	m := plainPayment()
	doc, ok := m.document.(*iso20022.Pacs008)
	require.True(b, ok)
	for len(doc.Transactions) < iso20022.MaxTransactions {
		doc.Transactions = append(doc.Transactions, doc.Transactions[0])
	}
	v, built := iso20022.DefaultVersions(), m.build(b)
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(built)))
		for b.Loop() {
			if _, err := v.Parse(built); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("build", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(built)))
		for b.Loop() {
			if _, err := v.Build(m.header, doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding_xml", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(built)))
		for b.Loop() {
			var nothing struct{}
			if err := xml.Unmarshal(built, &nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
}
