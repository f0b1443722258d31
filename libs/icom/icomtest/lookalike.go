package icomtest

// lookAlikes are messages in the shape of pacs.008 1.16 and pacs.002 1.17 as the SPI
// sends them, unsigned, with invented people. compile fills in what must be fresh.
func lookAlikes() []example {
	return []example{
		{"pacs.008_chave", []byte(pacs008(`<Prtry>DICT</Prtry>`, `<Prxy><Id>maria.souza@exemplo.com.br</Id></Prxy>`))},
		{"pacs.008_conta", []byte(pacs008(`<Prtry>MANU</Prtry>`, ``))},
		{"pacs.002_liquidado", []byte(pacs002(`<TxSts>ACSC</TxSts>` +
			`<FctvIntrBkSttlmDt><DtTm></DtTm></FctvIntrBkSttlmDt>` +
			`<OrgnlTxRef><IntrBkSttlmDt></IntrBkSttlmDt></OrgnlTxRef>`))},
		{"pacs.002_rejeitado", []byte(pacs002(`<TxSts>RJCT</TxSts>` +
			`<StsRsnInf><Rsn><Cd>AB03</Cd></Rsn><AddtlInf>Tempo de resposta excedido</AddtlInf></StsRsnInf>`))},
	}
}

func envelope(msg, version, document string) string {
	party := func(tag, ispb string) string {
		return `<` + tag + `><FIId><FinInstnId><Othr><Id>` + ispb + `</Id></Othr></FinInstnId></FIId></` + tag + `>`
	}
	return `<?xml version="1.0" encoding="UTF-8" standalone="no"?>` +
		`<Envelope xmlns="https://www.bcb.gov.br/pi/` + msg + `/` + version + `"><AppHdr>` +
		party("Fr", "00038166") + party("To", "") +
		`<BizMsgIdr></BizMsgIdr><MsgDefIdr>` + msg + `.spi.` + version + `</MsgDefIdr>` +
		`<CreDt></CreDt><Sgntr></Sgntr></AppHdr>` +
		`<Document>` + document + `</Document></Envelope>`
}

func pacs008(initiation, proxy string) string {
	person := func(tag, name, cpf string) string {
		return `<` + tag + `>` + name + `<Id><PrvtId><Othr><Id>` + cpf + `</Id></Othr></PrvtId></Id></` + tag + `>`
	}
	account := func(tag, number, branch, kind, rest string) string {
		return `<` + tag + `><Id><Othr><Id>` + number + `</Id><Issr>` + branch + `</Issr></Othr></Id>` +
			`<Tp><Cd>` + kind + `</Cd></Tp>` + rest + `</` + tag + `>`
	}
	agent := func(tag string) string {
		return `<` + tag + `><FinInstnId><ClrSysMmbId><MmbId></MmbId></ClrSysMmbId></FinInstnId></` + tag + `>`
	}
	return envelope("pacs.008", "1.16", `<FIToFICstmrCdtTrf>`+
		`<GrpHdr><MsgId></MsgId><CreDtTm></CreDtTm><NbOfTxs>1</NbOfTxs>`+
		`<SttlmInf><SttlmMtd>CLRG</SttlmMtd></SttlmInf>`+
		`<PmtTpInf><InstrPrty>HIGH</InstrPrty><SvcLvl><Prtry>PAGPRI</Prtry></SvcLvl></PmtTpInf></GrpHdr>`+
		`<CdtTrfTxInf><PmtId><EndToEndId></EndToEndId></PmtId><IntrBkSttlmAmt Ccy="BRL"></IntrBkSttlmAmt>`+
		`<AccptncDtTm></AccptncDtTm><ChrgBr>SLEV</ChrgBr>`+
		`<MndtRltdInf><Tp><LclInstrm>`+initiation+`</LclInstrm></Tp></MndtRltdInf>`+
		person("Dbtr", "<Nm>João Pereira Lima</Nm>", "11111111111")+account("DbtrAcct", "810042", "1", "CACC", "")+
		agent("DbtrAgt")+agent("CdtrAgt")+
		person("Cdtr", "", "22222222222")+account("CdtrAcct", "350017", "12", "TRAN", proxy)+
		`<Purp><Cd>IPAY</Cd></Purp><RmtInf><Ustrd>Almoço de domingo</Ustrd></RmtInf></CdtTrfTxInf></FIToFICstmrCdtTrf>`)
}

func pacs002(status string) string {
	return envelope("pacs.002", "1.17", `<FIToFIPmtStsRpt><GrpHdr><MsgId></MsgId><CreDtTm></CreDtTm></GrpHdr>`+
		`<TxInfAndSts><OrgnlInstrId></OrgnlInstrId><OrgnlEndToEndId></OrgnlEndToEndId>`+status+
		`</TxInfAndSts></FIToFIPmtStsRpt>`)
}
