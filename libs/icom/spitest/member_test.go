package spitest_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

const (
	payer    = pix.ISPB("12345678")
	receiver = pix.ISPB("87654321")
	closed   = pix.ISPB("00000099")
	hold     = 20 * time.Millisecond
	wait     = 10 * time.Second
	tick     = 2 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// credentials are shared by the tests of the package: RSA keys are slow to make.
type credentials struct {
	pki        *icomtest.PKI
	identities map[pix.ISPB]signaturetest.Identity
}

var shared = sync.OnceValues(func() (credentials, error) {
	c := credentials{identities: make(map[pix.ISPB]signaturetest.Identity)}
	for _, ispb := range []pix.ISPB{pix.SPI, payer, receiver} {
		id, err := signaturetest.New(string(ispb), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
		if err != nil {
			return c, err
		}
		c.identities[ispb] = id
	}
	var err error
	c.pki, err = icomtest.NewPKI()
	return c, err
})

// start makes an SPI with two participants of 1,000.00 each, a closed one and the virtual one.
func start(t testing.TB, cfg spitest.Config) (*icomtest.Bank, *spitest.SPI) {
	t.Helper()
	c, err := shared()
	require.NoError(t, err)
	cfg.Signer, err = c.identities[pix.SPI].Signer()
	require.NoError(t, err)
	for _, ispb := range []pix.ISPB{payer, receiver} {
		cfg.Participants = append(cfg.Participants, spitest.Participant{
			ISPB: ispb, Balance: 1000_00, Certificates: certificates(c.identities[ispb]),
		})
	}
	cfg.Participants = append(cfg.Participants,
		spitest.Participant{ISPB: closed, Closed: true}, spitest.Participant{ISPB: spitest.VirtualISPB, Virtual: true})
	return spitest.Start(t, icomtest.Config{PKI: c.pki, Hold: hold, Unmetered: true}, cfg)
}

// member is a participant's side: one connection to send, one to read.
type member struct {
	t        testing.TB
	ispb     pix.ISPB
	signer   *signature.Signer
	spi      *signature.Verifier
	out, in  *tls.Conn
	outBuf   *bufio.Reader
	inBuf    *bufio.Reader
	cursor   string
	unread   []iso20022.Envelope
	rawBytes []byte // of the last message read
}

func join(t testing.TB, b *icomtest.Bank, channel pix.Channel, ispb pix.ISPB) *member {
	t.Helper()
	c, err := shared()
	require.NoError(t, err)
	m := &member{t: t, ispb: ispb, cursor: icom.PathStreamStart(ispb)}
	m.signer, err = c.identities[ispb].Signer()
	require.NoError(t, err)
	m.spi, err = signature.NewVerifier(clock.System(), c.identities[pix.SPI].Certificate)
	require.NoError(t, err)
	cfg, err := b.PKI().ClientConfig(ispb)
	require.NoError(t, err)
	dial := func() (*tls.Conn, *bufio.Reader) {
		conn, err := tls.Dial("tcp", b.Addr(channel), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		return conn, bufio.NewReader(conn)
	}
	m.out, m.outBuf = dial()
	m.in, m.inBuf = dial()
	return m
}

func exchange(t testing.TB, conn *tls.Conn, br *bufio.Reader, head, body string) (*http.Response, []byte) {
	t.Helper()
	_, err := io.WriteString(conn, head+"\r\nHost: localhost\r\n"+body)
	require.NoError(t, err)
	resp, err := http.ReadResponse(br, nil)
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, answer
}

// post sends bytes as one message and returns its PI-ResourceId.
func (m *member) post(message []byte) string {
	m.t.Helper()
	resp, _ := exchange(m.t, m.out, m.outBuf, "POST "+icom.PathSend(m.ispb)+" HTTP/1.1",
		fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", icom.TypeMessage, len(message), message))
	require.Equal(m.t, http.StatusCreated, resp.StatusCode)
	return resp.Header.Get(icom.HeaderResourceID)
}

// header is one for the SPI, fresh.
func (m *member) header() iso20022.Header {
	m.t.Helper()
	id, err := pix.NewMsgID(m.ispb, rand.Reader)
	require.NoError(m.t, err)
	return iso20022.Header{From: m.ispb, To: pix.SPI, MsgID: id, Created: now()}
}

func (m *member) signed(h iso20022.Header, d iso20022.Document) []byte {
	m.t.Helper()
	message, err := iso20022.DefaultVersions().Build(h, d)
	require.NoError(m.t, err)
	message, err = m.signer.Sign(message)
	require.NoError(m.t, err)
	return message
}

// send signs and sends a document.
func (m *member) send(d iso20022.Document) (resourceID string, h iso20022.Header) {
	m.t.Helper()
	h = m.header()
	return m.post(m.signed(h, d)), h
}

// read asks the bank once, and keeps what it gives.
func (m *member) read() {
	m.t.Helper()
	resp, body := exchange(m.t, m.in, m.inBuf, "GET "+m.cursor+" HTTP/1.1", "Accept: multipart/mixed\r\n\r\n")
	m.cursor = resp.Header.Get(icom.HeaderPullNext)
	if resp.StatusCode == http.StatusNoContent {
		return
	}
	require.Equal(m.t, http.StatusOK, resp.StatusCode)
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	require.NoError(m.t, err)
	for r := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(m.t, err)
		m.rawBytes, err = io.ReadAll(p)
		require.NoError(m.t, err)
		_, err = m.spi.Verify(m.rawBytes)
		require.NoError(m.t, err)
		e, err := iso20022.DefaultVersions().Parse(m.rawBytes)
		require.NoError(m.t, err, string(m.rawBytes))
		require.Equal(m.t, pix.SPI, e.Header.From)
		require.Equal(m.t, m.ispb, e.Header.To)
		require.Regexp(m.t, `^M00038166[0-9A-Z]{23}$`, string(e.Header.MsgID))
		m.unread = append(m.unread, e)
	}
}

// next waits for a message.
func (m *member) next() iso20022.Envelope {
	m.t.Helper()
	for end := time.Now().Add(wait); len(m.unread) == 0; {
		require.True(m.t, time.Now().Before(end), "%s waits in vain", m.ispb)
		m.read()
	}
	e := m.unread[0]
	m.unread = m.unread[1:]
	return e
}

// nothing asserts that no message comes for two holds.
func (m *member) nothing() {
	m.t.Helper()
	m.read()
	m.read()
	require.Empty(m.t, m.unread)
}

// got waits for a message of one type.
func got[D iso20022.Document](m *member) D {
	m.t.Helper()
	e := m.next()
	d, ok := e.Document.(D)
	require.True(m.t, ok, "%T: %s", e.Document, m.rawBytes)
	return d
}

// told waits for one status.
func (m *member) told() iso20022.PaymentStatus {
	m.t.Helper()
	d := got[*iso20022.Pacs002](m)
	require.Len(m.t, d.Statuses, 1)
	return d.Statuses[0]
}

// refused waits for a rejection and returns its code.
func (m *member) refused(id string) iso20022.ReasonCode {
	m.t.Helper()
	st := m.told()
	require.Equal(m.t, id, st.OriginalInstrID)
	require.Equal(m.t, iso20022.RJCT, st.Status)
	require.Nil(m.t, st.SettledAt)
	return st.Reasons[0].Code
}

// answer says ACSP, or RJCT for a reason, to payments and returns by identifier and original.
func (m *member) answer(reason iso20022.ReasonCode, ids ...[2]string) {
	m.t.Helper()
	d := &iso20022.Pacs002{}
	for _, id := range ids {
		st := iso20022.PaymentStatus{OriginalInstrID: id[0], OriginalEndToEndID: pix.EndToEndID(id[1]), Status: iso20022.ACSP}
		if reason != "" {
			st.Status, st.Reasons = iso20022.RJCT, []iso20022.StatusReason{{Code: reason, Info: []string{"porque sim"}}}
		}
		d.Statuses = append(d.Statuses, st)
	}
	m.send(d)
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func transfer(t testing.TB, from, to pix.ISPB, amount pix.Amount) iso20022.CreditTransfer {
	t.Helper()
	id, err := pix.NewEndToEndID(from, now(), rand.Reader)
	require.NoError(t, err)
	return iso20022.CreditTransfer{
		EndToEndID: id, Amount: amount, AcceptedAt: now(), LocalInstrument: iso20022.MANU,
		Debtor:        iso20022.Party{Name: "João Pereira Lima", ID: "11111111111"},
		DebtorAccount: iso20022.Account{ID: "810042", Branch: "1", Type: iso20022.CACC},
		DebtorAgent:   from, CreditorAgent: to, CreditorID: "22222222222",
		CreditorAccount: iso20022.Account{ID: "350017", Branch: "12", Type: iso20022.TRAN},
		Purpose:         iso20022.PurposePayment, Remittance: &iso20022.Remittance{Text: "Almoço de domingo"},
	}
}

func giveBack(t testing.TB, p iso20022.CreditTransfer, amount pix.Amount) iso20022.PaymentReturn {
	t.Helper()
	id, err := pix.NewReturnID(p.CreditorAgent, now(), rand.Reader)
	require.NoError(t, err)
	return iso20022.PaymentReturn{
		ReturnID: id, OriginalEndToEndID: p.EndToEndID, Amount: amount, Priority: iso20022.High,
		Reason:      iso20022.ReturnReason{Code: iso20022.ReturnAsked},
		DebtorAgent: p.DebtorAgent, CreditorAgent: p.CreditorAgent,
	}
}

func priority(transfers ...iso20022.CreditTransfer) *iso20022.Pacs008 {
	return &iso20022.Pacs008{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: transfers}
}

func same(id pix.EndToEndID) [2]string { return [2]string{string(id), string(id)} }

func certificates(ids ...signaturetest.Identity) (out []*x509.Certificate) {
	for _, id := range ids {
		out = append(out, id.Certificate)
	}
	return out
}
