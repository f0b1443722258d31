package iso20022

import "time"

const msgAdmi002 = "admi.002"

// Admi002 is the SPI's refusal of a whole message (admi.002 1.5): nothing in it was accepted.
type Admi002 struct {
	// Ref names the refused message: its PI-ResourceId or its MsgId, since sources differ; 1 to 33 characters.
	Ref string `json:"ref"`
	// Reason is RjctgPtyRsn, 1 to 35 characters.
	Reason string `json:"reason"`
	// RejectedAt is RjctnDtTm; nil when absent.
	RejectedAt *time.Time `json:"rejected_at,omitempty"`
	// Location is ErrLctn, which element is at fault; at most 350 characters, "" when absent.
	Location string `json:"location,omitempty"`
	// Description is RsnDesc, often what the SPI's XML reader said; at most 350 characters, "" when absent.
	Description string `json:"description,omitempty"`
	// Data is AddtlData, at most 1000 characters, "" when absent.
	Data string `json:"data,omitempty"`
}

// MsgType is "admi.002".
func (m *Admi002) MsgType() string { return msgAdmi002 }

func (m *Admi002) walk(x *walker) {
	x.group("admi.002.001.01", func() {
		text(x, &m.Ref, text33, "RltdRef", "Ref")
		x.group("Rsn", func() {
			text(x, &m.Reason, text35, "RjctgPtyRsn")
			x.optionalInstant(&m.RejectedAt, "RjctnDtTm")
			optional(x, &m.Location, text350, "ErrLctn")
			optional(x, &m.Description, text350, "RsnDesc")
			optional(x, &m.Data, text1000, "AddtlData")
		})
	})
}

// Truncated is the message with its texts cut to what the schema allows.
func (m Admi002) Truncated() Admi002 {
	m.Ref, m.Reason = cut(m.Ref, 33), cut(m.Reason, 35)
	m.Location, m.Description, m.Data = cut(m.Location, 350), cut(m.Description, 350), cut(m.Data, 1000)
	return m
}
