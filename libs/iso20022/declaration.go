package iso20022

import "strings"

// declaration goes over <?xml ...?>, which may be absent: XML 1.0 in UTF-8.
func (x *walker) declaration() {
	if x.err != nil {
		return
	}
	rest, found := strings.CutPrefix(x.in.doc, "<?xml")
	if !found {
		return
	}
	attributes, _, ended := strings.Cut(rest, "?>")
	x.in.pos = len("<?xml") + len(attributes) + len("?>")
	x.check(ended, "the declaration has no end")
	versioned := false
	for attributes = strings.TrimRight(attributes, space); attributes != "" && x.err == nil; {
		name, value, more, refused := readAttribute(attributes)
		x.check(refused == "", refused)
		attributes = more
		switch name {
		case "version":
			versioned = value == "1.0"
		case "encoding":
			x.check(strings.EqualFold(value, "UTF-8"), "want UTF-8")
		case "standalone":
		default:
			x.fail("the declaration has an unknown attribute")
		}
	}
	x.check(versioned, "want XML 1.0")
}

// nothingMore checks that the document ends after its root.
func (x *walker) nothingMore() {
	if x.err != nil {
		return
	}
	x.check(skipSpace(x.in.doc, x.in.pos) == len(x.in.doc), "something follows the envelope")
}
