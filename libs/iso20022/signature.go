package iso20022

import (
	"slices"
	"strings"
)

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

// skipSignature goes over an element Signature of its namespace, if there is one, and checks that it is XML.
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
	if refused := r.skipElement(); refused != "" {
		return false, "in the signature: " + refused
	}
	return true, ""
}

// skipElement goes over the element that begins here, with all that is in it.
func (r *reader) skipElement() (refused string) {
	open := make([]string, 0, maxSignatureDepth)
	for {
		if strings.HasPrefix(r.doc[r.pos:], "</") {
			if !r.close(open[len(open)-1]) {
				return "the end of an element is missing"
			}
			open = open[:len(open)-1]
		} else {
			t, refused := readTag(r.doc, r.pos)
			if refused == "" {
				refused = t.checkAttributes()
			}
			switch {
			case refused != "":
				return refused
			case !t.empty && len(open) == maxSignatureDepth:
				return "it nests too deep"
			case !t.empty:
				open = append(open, t.name)
			}
			r.pos = t.end
		}
		if len(open) == 0 {
			return ""
		}
		length := strings.IndexByte(r.doc[r.pos:], '<')
		if length < 0 {
			return "the message ends in it"
		}
		if _, refused := unescape(r.doc[r.pos : r.pos+length]); refused != "" {
			return refused
		}
		r.pos += length
	}
}

// checkAttributes reads all attributes of a tag.
func (t tag) checkAttributes() (refused string) {
	seen := make([]string, 0, 4)
	for rest := t.attributes; rest != ""; {
		name, _, more, refused := readAttribute(rest)
		switch {
		case refused != "":
			return refused
		case slices.Contains(seen, name):
			return "the attribute " + quote(name) + " is there twice"
		}
		seen, rest = append(seen, name), more
	}
	return ""
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
