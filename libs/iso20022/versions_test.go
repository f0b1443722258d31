package iso20022_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
)

// While the SPI changes over, two adjacent versions are accepted and the configured one is built.
func TestTwoVersionsAtOnce(t *testing.T) {
	t.Parallel()
	both := iso20022.Versions{"pacs.008": {"1.15", "1.16"}, "pacs.002": {"1.17", "1.16"}}
	require.NoError(t, both.Validate())
	m := plainPayment()
	m.header.Version = ""
	old, err := both.Build(m.header, m.document)
	require.NoError(t, err)
	require.Contains(t, string(old), `xmlns="https://www.bcb.gov.br/pi/pacs.008/1.15"`)
	require.Contains(t, string(old), "<MsgDefIdr>pacs.008.spi.1.15<")
	m.header.Version = "1.16"
	current, err := both.Build(m.header, m.document)
	require.NoError(t, err)
	require.Equal(t, string(bytes.ReplaceAll(old, []byte("1.15"), []byte("1.16"))), string(current))

	for version, message := range map[string][]byte{"1.15": old, "1.16": current} {
		got, err := both.Parse(message)
		require.NoError(t, err)
		require.Equal(t, version, got.Header.Version)
		require.Equal(t, m.document, got.Document)
	}
	_, err = iso20022.DefaultVersions().Parse(old)
	var refused *iso20022.VersionError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, iso20022.VersionError{MsgType: "pacs.008", Version: "1.15"}, *refused)
	m.header.Version = "1.15"
	_, err = iso20022.DefaultVersions().Build(m.header, m.document)
	require.ErrorAs(t, err, &refused)
	_, err = both.Build(m.header, &iso20022.Pibr001{Data: "x"})
	require.Error(t, err)
}

// What the version before did not have is not built for it, and not read in it.
func TestNewPartsAreNotInOldVersions(t *testing.T) {
	t.Parallel()
	both := iso20022.Versions{"pacs.008": {"1.16", "1.15"}, "pacs.002": {"1.17", "1.16"}, "camt.054": {"1.16", "1.15"}}
	payment, status, entry := plainPayment(), fixed(4).all()[2], fixed(4).all()[11]
	doc, ok := payment.document.(*iso20022.Pacs008)
	require.True(t, ok)
	doc.Transactions[1].InstrID = "E1234567820260131120000000000001"
	status.document = &iso20022.Pacs002{Statuses: []iso20022.PaymentStatus{{
		OriginalInstrID: "E1234567820260131120000000000001", OriginalEndToEndID: "E1234567820260131120000000000001",
		Status: iso20022.RJCT, Reasons: []iso20022.StatusReason{{Code: iso20022.DU03}},
	}}}
	notice, ok := entry.document.(*iso20022.Camt054)
	require.True(t, ok)
	notice.Notifications[0].Details.InstrID = "E1234567820260131120000000000001"

	for _, c := range []struct {
		sample
		current, old, path string
	}{
		{payment, "1.16", "1.15", "CdtTrfTxInf[2]/PmtId/InstrId"},
		{status, "1.17", "1.16", "StsRsnInf[1]/Rsn/Cd"},
		{entry, "1.16", "1.15", "Refs/InstrId"},
	} {
		c.header.Version = c.current
		built, err := both.Build(c.header, c.document)
		require.NoError(t, err)
		_, err = both.Parse(built)
		require.NoError(t, err)

		_, err = both.Parse([]byte(strings.ReplaceAll(string(built), c.current, c.old)))
		require.ErrorContains(t, err, c.path)
		c.header.Version = c.old
		_, err = both.Build(c.header, c.document)
		require.ErrorContains(t, err, c.path)
	}
}

func TestVersionsAreChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, iso20022.DefaultVersions().Validate())
	for _, bad := range []iso20022.Versions{
		{"pacs.009": {"1.0"}},
		{"pacs.008": {}},
		{"pacs.008": {"1.14", "1.15", "1.16"}},
		{"pacs.008": {"116"}},
		{"pacs.008": {"1."}},
		{"pacs.008": {"1.x"}},
		{"pacs.008": {strings.Repeat("1", 20) + ".1"}},
	} {
		require.Error(t, bad.Validate(), "%v", bad)
	}
}

func TestOtherEnvelopesAreNamed(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]iso20022.VersionError{
		"https://www.bcb.gov.br/pi/reda.014/1.3":                          {MsgType: "reda.014", Version: "1.3"},
		"https://www.bcb.gov.br/pi/pacs.008/" + strings.Repeat("9", 1000): {MsgType: "pacs.008", Version: "999999999999"},
		"https://www.bcb.gov.br/pi/pacs.008":                              {MsgType: "pacs.008"},
		"urn:iso:std:iso:20022:tech:xsd:pacs.008.001.08":                  {MsgType: "urn:iso:std:"},
		"": {},
	} {
		_, err := iso20022.DefaultVersions().Parse([]byte(`<Envelope xmlns="` + namespace + `"/>`))
		var refused *iso20022.VersionError
		require.ErrorAs(t, err, &refused, namespace)
		require.Equal(t, want, *refused)
	}
	_, err := iso20022.DefaultVersions().Parse([]byte(`<Envelope xmlns="pacs.008/1.16"/>`))
	require.Error(t, err)
}
