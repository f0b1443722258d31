package iso20022

import "strings"

const (
	signatureNamespace = "http://www.w3.org/2000/09/xmldsig#"
	// maxSignatureDepth bounds how deep a signature nests. The SPI's have 6 levels.
	maxSignatureDepth = 12
)

// signature is Sgntr: empty, or with one ds:Signature, which is skipped.
func (x *walker) signature(signed *bool) {
	x.enter("Sgntr")
	if x.err == nil && x.in != nil {
		found, refused := x.in.skipSignature()
		*signed = found
		x.check(refused == "", refused)
	}
	x.leave("Sgntr")
}

// skipSignature goes over an element Signature of its namespace, if there is one, checking only that its tags nest.
func (r *reader) skipSignature() (found bool, refused string) {
	if r.closed {
		return false, ""
	}
	r.pos = skipSpace(r.doc, r.pos)
	if !strings.HasPrefix(r.doc[r.pos:], "<") || strings.HasPrefix(r.doc[r.pos:], "</") {
		return false, "" // what else may be here is for the caller
	}
	t, refused := readTag(r.doc, r.pos)
	if refused != "" {
		return false, refused
	}
	if !isSignature(t) {
		return false, "found " + quote(t.name) + " where a signature must be"
	}
	var open [maxSignatureDepth]string
	for depth := 0; ; {
		switch rest := r.doc[r.pos:]; {
		case strings.HasPrefix(rest, "</"):
			depth--
			if refused := r.close(open[depth]); refused != "" {
				return false, "in the signature: " + refused
			}
		default:
			t, refused := readTag(r.doc, r.pos)
			switch {
			case refused != "":
				return false, "in the signature: " + refused
			case !t.empty && depth == len(open):
				return false, "the signature nests too deep"
			case !t.empty:
				open[depth] = t.name
				depth++
			}
			r.pos = t.end
		}
		if depth == 0 {
			return true, ""
		}
		length := strings.IndexByte(r.doc[r.pos:], '<')
		if length < 0 {
			return false, "the message ends in the signature"
		}
		r.pos += length
	}
}

// isSignature reports whether an element is Signature, in the namespace that it declares itself.
func isSignature(t tag) bool {
	prefix, local, prefixed := strings.Cut(t.name, ":")
	declaration := "xmlns:" + prefix
	if !prefixed {
		local, declaration = t.name, "xmlns"
	}
	for rest := t.attributes; rest != ""; {
		name, value, more, refused := readAttribute(rest)
		if refused != "" {
			return false
		}
		if name == declaration {
			return local == "Signature" && value == signatureNamespace
		}
		rest = more
	}
	return false
}
