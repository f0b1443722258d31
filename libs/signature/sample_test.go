package signature_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// identity is shared by the tests of the package: its key is slow to make.
var identity = sync.OnceValues(func() (signaturetest.Identity, error) {
	now := clock.NewFake().Now().Wall
	return signaturetest.New("AC SIMULADA SPB", now.Add(-time.Hour), now.Add(time.Hour))
})

func theIdentity(t testing.TB) signaturetest.Identity {
	t.Helper()
	i, err := identity()
	require.NoError(t, err)
	return i
}

func theSigner(t testing.TB) *signature.Signer {
	t.Helper()
	s, err := theIdentity(t).Signer()
	require.NoError(t, err)
	return s
}

func theVerifier(t testing.TB) *signature.Verifier {
	t.Helper()
	v, err := signature.NewVerifier(clock.NewFake(), theIdentity(t).Certificate)
	require.NoError(t, err)
	return v
}

func sign(t testing.TB, message string) string {
	t.Helper()
	signed, err := theSigner(t).Sign([]byte(message))
	require.NoError(t, err)
	return string(signed)
}

// order is a pacs.008 as a builder writes it, with n transactions.
func order(n int) string {
	var transactions strings.Builder
	for i := range n {
		fmt.Fprintf(&transactions, `<CdtTrfTxInf><PmtId><EndToEndId>E9999900820260102030405%07d0</EndToEndId>`+
			`<TxId>cobranca%07d</TxId></PmtId><IntrBkSttlmAmt Ccy="BRL">1234.56</IntrBkSttlmAmt>`+
			`<AccptncDtTm>2026-01-02T03:04:05.000Z</AccptncDtTm><ChrgBr>SLEV</ChrgBr>`+
			`<MndtRltdInf><Tp><LclInstrm><Prtry>DICT</Prtry></LclInstrm></Tp></MndtRltdInf>`+
			`<Dbtr><Nm>Antônio &amp; Irmãos Comércio Ltda</Nm><Id><PrvtId><Othr><Id>12345678909</Id></Othr></PrvtId></Id></Dbtr>`+
			`<DbtrAcct><Id><Othr><Id>500000</Id><Issr>3000</Issr></Othr></Id><Tp><Cd>CACC</Cd></Tp></DbtrAcct>`+
			`<DbtrAgt><FinInstnId><ClrSysMmbId><MmbId>99999008</MmbId></ClrSysMmbId></FinInstnId></DbtrAgt>`+
			`<CdtrAgt><FinInstnId><ClrSysMmbId><MmbId>99999010</MmbId></ClrSysMmbId></FinInstnId></CdtrAgt>`+
			`<Cdtr><Id><PrvtId><Othr><Id>98765432100</Id></Othr></PrvtId></Id></Cdtr>`+
			`<CdtrAcct><Id><Othr><Id>600000</Id><Issr>4000</Issr></Othr></Id><Tp><Cd>SVGS</Cd></Tp>`+
			`<Prxy><Id>+5561999999999</Id></Prxy></CdtrAcct><Purp><Cd>IPAY</Cd></Purp>`+
			`<RmtInf><Ustrd>Pagamento da parcela 3 de 10, obrigado!</Ustrd></RmtInf></CdtTrfTxInf>`, i, i)
	}
	const head, id = `<FIId><FinInstnId><Othr><Id>%s</Id></Othr></FinInstnId></FIId>`, `M99999008abcdefghijklmnopqrstuvw`
	return `<?xml version="1.0" encoding="UTF-8" standalone="no"?>` +
		`<Envelope xmlns="https://www.bcb.gov.br/pi/pacs.008/1.16"><AppHdr>` +
		`<Fr>` + fmt.Sprintf(head, "99999008") + `</Fr><To>` + fmt.Sprintf(head, "00038166") + `</To>` +
		`<BizMsgIdr>` + id + `</BizMsgIdr><MsgDefIdr>pacs.008.spi.1.16</MsgDefIdr>` +
		`<CreDt>2026-01-02T03:04:05.000Z</CreDt><Sgntr></Sgntr></AppHdr>` +
		`<Document><FIToFICstmrCdtTrf><GrpHdr><MsgId>` + id + `</MsgId><CreDtTm>2026-01-02T03:04:05.000Z</CreDtTm>` +
		fmt.Sprintf(`<NbOfTxs>%d</NbOfTxs>`, n) + `<SttlmInf><SttlmMtd>CLRG</SttlmMtd></SttlmInf>` +
		`<PmtTpInf><InstrPrty>HIGH</InstrPrty><SvcLvl><Prtry>PAGPRI</Prtry></SvcLvl></PmtTpInf></GrpHdr>` +
		transactions.String() + `</FIToFICstmrCdtTrf></Document></Envelope>`
}
