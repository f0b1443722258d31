package iso20022

import "fmt"

// SyntaxError says that a received message is not what its schema says. It carries no values.
type SyntaxError struct {
	// Path leads to the element, as in "Envelope/AppHdr/CreDt" or ".../CdtTrfTxInf[2]/PmtId", counting from 1.
	Path string
	// Reason is one sentence.
	Reason string
}

// Error is the path and the reason.
func (e *SyntaxError) Error() string { return fmt.Sprintf("iso20022: read %s: %s", e.Path, e.Reason) }

// InvalidError says that a message to be built breaks its schema or a rule of the catalogue. It carries no values.
type InvalidError struct {
	// Path leads to the element, as in SyntaxError.
	Path string
	// Reason is one sentence.
	Reason string
}

// Error is the path and the reason.
func (e *InvalidError) Error() string { return fmt.Sprintf("iso20022: build %s: %s", e.Path, e.Reason) }

// VersionError says that an envelope holds a message of a type or version that is not accepted.
type VersionError struct {
	// MsgType as "pacs.008" and Version as "1.16", shortened when they are longer than any of the SPI's.
	MsgType, Version string
}

// Error names the type and the version.
func (e *VersionError) Error() string {
	return fmt.Sprintf("iso20022: %q version %q is not accepted", e.MsgType, e.Version)
}
