package bus

import (
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// InboundSubject is "pix.in.<ispb>.<msg>", e.g. "pix.in.12345678.pacs008" for "pacs.008"; "other" stands for a type that
// is unknown.
func InboundSubject(ispb pix.ISPB, msgType string) string {
	return "pix.in." + token(string(ispb)) + "." + token(msgType)
}

// OutboundSubject is "pix.out.<ispb>.<channel>".
func OutboundSubject(ispb pix.ISPB, channel pix.Channel) string {
	return "pix.out." + token(string(ispb)) + "." + token(string(channel))
}

// SettlementSubject is "pix.settlement.<what>".
func SettlementSubject(what string) string { return "pix.settlement." + token(what) }

// PaymentRequestSubject is "core.payment_request.<ispb>".
func PaymentRequestSubject(ispb pix.ISPB) string {
	return "core.payment_request." + token(string(ispb))
}

// CoreAnswerSubject is "core.payment_accepted.<ispb>" or "core.payment_refused.<ispb>".
func CoreAnswerSubject(ispb pix.ISPB, accepted bool) string {
	if accepted {
		return "core.payment_accepted." + token(string(ispb))
	}
	return "core.payment_refused." + token(string(ispb))
}

// token keeps the letters and digits of s: whatever was received, a subject has the levels that the streams expect.
func token(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, s)
	if s == "" {
		return "other"
	}
	return s
}
