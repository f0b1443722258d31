package iso20022

const msgPibr001 = "pibr.001"

// Pibr001 asks the SPI for an echo (pibr.001 1.3). The answer is Pibr002.
type Pibr001 struct {
	// Data comes back unchanged and is the only thing that tells which question an answer is for; 1 to 35 characters.
	Data string `json:"data"`
}

// MsgType is "pibr.001".
func (m *Pibr001) MsgType() string { return msgPibr001 }

func (m *Pibr001) walk(x *walker) {
	x.group("EchoReq", func() {
		x.groupHeader(nothing)
		text(x, &m.Data, text35, "EchoTxInf", "Data")
	})
}
