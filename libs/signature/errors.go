package signature

import "fmt"

// Reason says why a message was not accepted, for callers that branch and for metrics.
type Reason string

// The reasons, in the order in which a message is examined.
const (
	// Malformed: not XML, or XML that a message of the SPI has no use for.
	Malformed Reason = "malformed"
	// BadStructure: not one Envelope with one AppHdr and one Document, or a part where it must not be.
	BadStructure Reason = "bad_structure"
	// Unsigned: Sgntr is empty where a signature is needed.
	Unsigned Reason = "unsigned"
	// AlreadySigned: there is a signature where one was to be put.
	AlreadySigned Reason = "already_signed"
	// BadProfile: a signature, but not by the SPI's profile.
	BadProfile Reason = "bad_profile"
	// UnknownCertificate: issuer and serial are of no certificate that is trusted.
	UnknownCertificate Reason = "unknown_certificate"
	// NotInForce: the certificate is not valid yet or not any more.
	NotInForce Reason = "certificate_not_in_force"
	// WrongDigest: a part was changed after it was signed.
	WrongDigest Reason = "wrong_digest"
	// WrongValue: the signature is not by the key of the certificate.
	WrongValue Reason = "wrong_value"
)

// Error is a message that was refused. Its text quotes nothing of the message: what is in there may be anything.
type Error struct {
	Reason Reason
	// Detail says what was expected, and where as an offset in bytes.
	Detail string
}

// Error implements error.
func (e *Error) Error() string { return "signature: " + string(e.Reason) + ": " + e.Detail }

// refuse makes an Error.
func refuse(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Detail: fmt.Sprintf(format, args...)}
}
