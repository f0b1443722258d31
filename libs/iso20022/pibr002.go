package iso20022

const msgPibr002 = "pibr.002"

// Pibr002 is the SPI's answer to Pibr001 (pibr.002 1.3).
type Pibr002 struct {
	// OriginalData is Data of the question.
	OriginalData string `json:"original_data"`
}

// MsgType is "pibr.002".
func (m *Pibr002) MsgType() string { return msgPibr002 }

func (m *Pibr002) walk(x *walker) {
	x.group("EchoRpt", func() {
		x.groupHeader(nothing)
		text(x, &m.OriginalData, text35, "EchoTxInf", "OrgnlData")
	})
}
