package inbound

import "strings"

// deadKind is why a message is a dead letter, as the metric has it.
type deadKind string

// The kinds.
const (
	deadSignature     deadKind = "signature"
	deadSyntax        deadKind = "syntax"
	deadAddressee     deadKind = "addressee"
	deadType          deadKind = "unknown_type"
	deadUnknown       deadKind = "unknown_id"
	deadContradiction deadKind = "contradiction"
	deadFault         deadKind = "fault"
)

func deadKinds() []deadKind {
	return []deadKind{deadSignature, deadSyntax, deadAddressee, deadType, deadUnknown, deadContradiction, deadFault}
}

// dead says why a message cannot be processed, or not wholly.
type dead struct {
	kind   deadKind
	reason string
}

func (d dead) Error() string { return string(d.kind) + ": " + d.reason }

// reasonOf is what the dead letter says.
func reasonOf(all []dead) string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.Error()
	}
	return strings.Join(texts, "; ")
}
