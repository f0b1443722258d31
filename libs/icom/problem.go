package icom

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

const (
	problemPrefix    = "https://icom.pi.rsfn.net.br/api/v1/error/"
	problemNamespace = "urn:ietf:rfc:7807"
)

// MaxProblemBytes bounds an error's body. The real ones have some two hundred bytes.
const MaxProblemBytes = 16 << 10

// Names of problems. The first three were seen in real answers, the others come from the manual.
const (
	ProblemInvalidHeader      = "invalidHeader"
	ProblemServiceUnavailable = "serviceUnavailable"
	ProblemNotFound           = "notFound"
	ProblemForbidden          = "forbidden"
	ProblemCharset            = "charset"
)

// Problem is an error's body, RFC 7807 as XML. The ICOM fills these two members only.
type Problem struct {
	// Type is a URI; Name returns its last part.
	Type string
	// Title is one sentence, in Portuguese.
	Title string
}

// ProblemType returns the URI of a named problem. It names the production host also
// when the homologation host answers.
func ProblemType(name string) string { return problemPrefix + name }

// Name returns the last part of the problem's type, "invalidHeader".
func (p Problem) Name() string { return p.Type[strings.LastIndexByte(p.Type, '/')+1:] }

// MarshalProblem writes the document as the bank does.
func MarshalProblem(p Problem) []byte {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><problem xmlns="` + problemNamespace + `"><type>`)
	// A strings.Builder never fails.
	_ = xml.EscapeText(&b, []byte(p.Type))
	b.WriteString(`</type><title>`)
	_ = xml.EscapeText(&b, []byte(p.Title))
	b.WriteString(`</title></problem>`)
	return []byte(b.String())
}

// ParseProblem reads at most MaxProblemBytes from r and takes the type and title out of
// them. Members that it does not know are skipped; a document of another root is refused.
func ParseProblem(r io.Reader) (Problem, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxProblemBytes+1))
	if err != nil {
		return Problem{}, fmt.Errorf("problem document: %w", err)
	}
	if len(raw) > MaxProblemBytes {
		return Problem{}, fmt.Errorf("problem document is longer than %d bytes", MaxProblemBytes)
	}
	var doc struct {
		XMLName xml.Name
		Type    string `xml:"type"`
		Title   string `xml:"title"`
	}
	if err := xml.Unmarshal(raw, &doc); err != nil {
		return Problem{}, fmt.Errorf("problem document: %w", err)
	}
	if doc.XMLName.Local != "problem" {
		return Problem{}, fmt.Errorf("problem document has the root %q", doc.XMLName.Local)
	}
	return Problem{Type: strings.TrimSpace(doc.Type), Title: strings.TrimSpace(doc.Title)}, nil
}
