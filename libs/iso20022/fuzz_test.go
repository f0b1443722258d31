package iso20022_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
)

// FuzzParse: what is read is XML for others too; what can be built of it is read again as the same, and then built to
// the same bytes.
func FuzzParse(f *testing.F) {
	for n := range uint64(3) {
		for _, m := range fixed(n).all() {
			built := m.build(f)
			f.Add(built)
			f.Add(signed(built, signature))
		}
	}
	f.Add([]byte(`<!DOCTYPE x [<!ENTITY a "b">]><Envelope xmlns="https://www.bcb.gov.br/pi/pibr.001/1.3">&a;</Envelope>`))
	v := iso20022.DefaultVersions()
	f.Fuzz(func(t *testing.T, envelope []byte) {
		got, err := v.Parse(envelope)
		if err != nil {
			var syntax *iso20022.SyntaxError
			var version *iso20022.VersionError
			require.True(t, errors.As(err, &syntax) || errors.As(err, &version))
			require.Less(t, len(err.Error()), 1000)
			require.Zero(t, got)
			return
		}
		require.NoError(t, readByOthers(envelope), "%s", envelope)
		built, err := v.Build(got.Header, got.Document)
		if err != nil { // a rule, since the schema is kept
			var invalid *iso20022.InvalidError
			require.ErrorAs(t, err, &invalid)
			return
		}
		again, err := v.Parse(built)
		require.NoError(t, err, "%s", built)
		got.Signed = false
		require.Equal(t, got, again)
		same, err := v.Build(again.Header, again.Document)
		require.NoError(t, err)
		require.Equal(t, string(built), string(same))
	})
}

// readByOthers reads an envelope with the standard library.
func readByOthers(envelope []byte) error {
	decoder := xml.NewDecoder(strings.NewReader(string(envelope)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// FuzzBuild: any text in a message is refused or comes back.
func FuzzBuild(f *testing.F) {
	for _, text := range []string{"ping", "", "\x00", "a\xffb", "]]>", "&amp;<>\r\n\t", strings.Repeat("€", 36), "\ufffe"} {
		f.Add(text)
	}
	m := fixed(1).all()[6]
	f.Fuzz(func(t *testing.T, text string) {
		doc := &iso20022.Pibr001{Data: text}
		built, err := iso20022.DefaultVersions().Build(m.header, doc)
		require.Equal(t, err == nil, iso20022.Validate(doc) == nil)
		if err != nil {
			return
		}
		require.NoError(t, readByOthers(built))
		got, err := iso20022.DefaultVersions().Parse(built)
		require.NoError(t, err)
		require.Equal(t, doc, got.Document)
	})
}
