package icomtest_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// officialExamples is where the official files lie beside a checkout, if they do.
const officialExamples = "../../../../shared/data/spi/examples"

type envelope struct {
	XMLName xml.Name
	To      string `xml:"AppHdr>To>FIId>FinInstnId>Othr>Id"`
	From    string `xml:"AppHdr>Fr>FIId>FinInstnId>Othr>Id"`
	BizID   string `xml:"AppHdr>BizMsgIdr"`
	Def     string `xml:"AppHdr>MsgDefIdr"`
	Created string `xml:"AppHdr>CreDt"`
	Pay     struct {
		MsgID string `xml:"GrpHdr>MsgId"`
		Txs   []struct {
			EndToEnd string `xml:"PmtId>EndToEndId"`
			Amount   string `xml:"IntrBkSttlmAmt"`
			Creditor string `xml:"CdtrAgt>FinInstnId>ClrSysMmbId>MmbId"`
		} `xml:"CdtTrfTxInf"`
	} `xml:"Document>FIToFICstmrCdtTrf"`
	Status struct {
		MsgID string `xml:"GrpHdr>MsgId"`
		Txs   []struct {
			Instr    string `xml:"OrgnlInstrId"`
			EndToEnd string `xml:"OrgnlEndToEndId"`
		} `xml:"TxInfAndSts"`
	} `xml:"Document>FIToFIPmtStsRpt"`
}

// minted enqueues n examples and reads them back through the wire.
func minted(t *testing.T, cfg icomtest.Config, n int, kinds ...string) []envelope {
	t.Helper()
	cfg.Hold = time.Nanosecond
	b := start(t, cfg)
	_, err := b.EnqueueExamples(pix.CPM, bankA, n, kinds...)
	require.NoError(t, err)
	c := dial(t, b, pix.CPM, bankA)
	var out []envelope
	for cursor := ""; len(out) < n; {
		resp := c.pull(cursor)
		cursor = next(resp)
		_, bodies := messages(t, resp)
		for _, body := range bodies {
			var e envelope
			require.NoError(t, xml.Unmarshal([]byte(body), &e), body)
			out = append(out, e)
		}
	}
	return out
}

func checkMinted(t *testing.T, all []envelope) (operations int) {
	t.Helper()
	msgID := regexp.MustCompile(`^M00038166[0-9A-Z]{23}$`)
	endToEnd := regexp.MustCompile(`^E(99999A03|12345678)202601020304[0-9A-Z]{11}$`)
	amount := regexp.MustCompile(`^[1-9]\d{0,2}\.\d\d$`)
	seen := make(map[string]bool)
	fresh := func(id string) {
		require.False(t, seen[id], "%s twice", id)
		seen[id] = true
	}
	for _, e := range all {
		require.Equal(t, "Envelope", e.XMLName.Local)
		require.Equal(t, string(bankA), e.To)
		require.Equal(t, string(pix.SPI), e.From)
		require.Regexp(t, msgID, e.BizID)
		fresh(e.BizID)
		require.Equal(t, e.BizID, e.Pay.MsgID+e.Status.MsgID)
		require.Equal(t, "2026-01-02T03:04:05.000Z", e.Created)
		for _, tx := range e.Pay.Txs {
			require.Regexp(t, endToEnd, tx.EndToEnd)
			fresh(tx.EndToEnd)
			require.Regexp(t, amount, tx.Amount)
			require.Equal(t, string(bankA), tx.Creditor)
		}
		for _, tx := range e.Status.Txs {
			require.Regexp(t, endToEnd, tx.EndToEnd)
			fresh(tx.EndToEnd)
			require.Equal(t, tx.Instr, tx.EndToEnd)
		}
		operations += len(e.Pay.Txs) + len(e.Status.Txs)
	}
	return operations
}

func TestLookAlikes(t *testing.T) {
	t.Parallel()
	all := minted(t, icomtest.Config{Clock: clock.NewFake()}, 40)
	require.Equal(t, 40, checkMinted(t, all))
	payments := minted(t, icomtest.Config{Clock: clock.NewFake()}, 4, "pacs.008")
	require.Equal(t, "pacs.008.spi.1.16", payments[3].Def)
}

func TestOfficialExamples(t *testing.T) {
	t.Parallel()
	cfg := icomtest.Config{Clock: clock.NewFake(), Examples: officialExamples}
	_, err := os.Stat(officialExamples)
	files, _ := filepath.Glob(filepath.Join(officialExamples, "pacs.*.xml"))
	if err != nil || len(files) == 0 {
		// Without the folder the bank serves its look-alikes, which this proves instead.
		require.Equal(t, 20, checkMinted(t, minted(t, cfg, 20)))
		return
	}
	served := len(slices.DeleteFunc(files, func(f string) bool { return strings.Contains(f, "PSP") }))
	all := minted(t, cfg, served)
	require.Greater(t, checkMinted(t, all), served, "one of them has several operations")
}

func TestSeedMakesTheSameBank(t *testing.T) {
	t.Parallel()
	ids := func(seed uint64) ([]string, []envelope) {
		cfg := icomtest.Config{Clock: clock.NewFake(), Seed: seed}
		b := start(t, cfg)
		return b.Enqueue(pix.CPM, bankA, nil, nil), minted(t, cfg, 8)
	}
	a, messagesA := ids(7)
	b, messagesB := ids(7)
	other, _ := ids(8)
	require.Equal(t, a, b)
	require.Equal(t, messagesA, messagesB)
	require.NotEqual(t, a, other)
}

func TestUnknownExample(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{})
	_, err := b.EnqueueExamples(pix.CPM, bankA, 1, "pacs.999")
	require.ErrorContains(t, err, "pacs.999")
	require.ErrorContains(t, b.Feed(t.Context(), pix.CPM, bankA, 1, 1000, "pacs.999"), "pacs.999")
}

func TestFeedKeepsItsRate(t *testing.T) {
	t.Parallel()
	b := start(t, icomtest.Config{})
	begin := time.Now()
	require.NoError(t, b.Feed(t.Context(), pix.CPM, bankA, 200, 2000))
	require.GreaterOrEqual(t, time.Since(begin), 95*time.Millisecond)
	require.EqualValues(t, 200, b.Report().Participant(pix.CPM, bankA).Enqueued)
	require.NoError(t, b.Feed(t.Context(), pix.CPM, bankA, 5, 0), "without a rate at once")
	require.EqualValues(t, 205, b.Report().Participant(pix.CPM, bankA).Enqueued)
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	for _, cfg := range []icomtest.Config{
		{Cap: -1},
		{Limit: -1},
		{CountBy: "bytes"},
		{Hold: -1},
		{StreamExpiry: time.Second},
		{MaxBody: -1},
		{Timeline: -1},
		{MaxViolations: -1},
	} {
		_, err := icomtest.New(cfg)
		require.Error(t, err, "%+v", cfg)
	}
}
