package iso20022

import (
	"fmt"
	"slices"
	"strings"
)

// MaxSize bounds an envelope, in bytes, signature included. Ten transactions with everything in them have about 40 KB.
const MaxSize = 1 << 20

// namespace is what the namespace of every envelope begins with; type and version follow.
const namespace = "https://www.bcb.gov.br/pi/"

// Versions says per message type ("pacs.008") which versions are accepted ("1.16"), at most two; the first is built.
// What is not listed is neither read nor built.
type Versions map[string][]string

// DefaultVersions are those of catalogue 5.13, one for each type. Of the versions before them, pacs.008 1.15, pacs.002 1.16
// and camt.054 1.15 are known too and may be added.
func DefaultVersions() Versions {
	return Versions{
		msgPacs008: {"1.16"},
		msgPacs002: {"1.17"},
		msgPacs004: {"1.5"},
		msgAdmi002: {"1.5"},
		msgPibr001: {"1.3"},
		msgPibr002: {"1.3"},
		msgCamt060: {"1.9"},
		msgCamt052: {"1.3"},
		msgCamt053: {"1.4"},
		msgCamt054: {"1.16"},
	}
}

// Validate refuses types that this package does not have, more than two versions and what is no version.
func (v Versions) Validate() error {
	for msgType, versions := range v {
		switch {
		case newDocument(msgType) == nil:
			return fmt.Errorf("iso20022: versions: message type %q is unknown", msgType)
		case len(versions) < 1 || len(versions) > 2:
			return fmt.Errorf("iso20022: versions: %s has %d versions, want 1 or 2", msgType, len(versions))
		}
		for _, version := range versions {
			major, minor, point := strings.Cut(version, ".")
			if !point || !digits(major) || !digits(minor) || len(version) > maxVersion {
				return fmt.Errorf("iso20022: versions: %s version %q: want two numbers and a point", msgType, version)
			}
		}
	}
	return nil
}

// maxVersion is the length of the longest version, and of the longest type, that an error repeats.
const maxVersion = 12

// Parse reads a message. The error is a *SyntaxError or a *VersionError.
func (v Versions) Parse(envelope []byte) (Envelope, error) {
	var e Envelope
	x := reading(&e.Header, envelope)
	x.declaration()
	x.enter("Envelope")
	msgType, version, ours := strings.Cut(strings.TrimPrefix(x.in.namespace, namespace), "/")
	if x.err != nil {
		return Envelope{}, x.err
	}
	if e.Document = newDocument(msgType); !ours || e.Document == nil || !slices.Contains(v[msgType], version) ||
		!strings.HasPrefix(x.in.namespace, namespace) {
		return Envelope{}, &VersionError{MsgType: shorten(msgType), Version: shorten(version)}
	}
	e.Header.MsgType, e.Header.Version = msgType, version
	x.walkHeader(&e.Signed)
	x.group("Document", func() { e.Document.walk(x) })
	x.leave("Envelope")
	x.nothingMore()
	if x.err != nil {
		return Envelope{}, x.err
	}
	return e, nil
}

// Build writes a message without signature: Sgntr is there and empty. Times are cut to milliseconds. MsgType of the
// header may be empty, and so may Version, for the one that is built. The error is an *InvalidError or a *VersionError.
func (v Versions) Build(h Header, d Document) ([]byte, error) {
	msgType := d.MsgType()
	if h.MsgType != "" && h.MsgType != msgType {
		return nil, &InvalidError{Path: "Envelope/AppHdr/MsgDefIdr", Reason: "the header is for another type of message"}
	}
	h.MsgType = msgType
	if accepted := v[msgType]; h.Version == "" && len(accepted) > 0 {
		h.Version = accepted[0]
	} else if !slices.Contains(accepted, h.Version) {
		return nil, &VersionError{MsgType: msgType, Version: shorten(h.Version)}
	}
	x := writing(&h)
	x.out = append(x.out, `<?xml version="1.0" encoding="UTF-8" standalone="no"?><Envelope xmlns="`...)
	x.out = append(append(append(append(x.out, namespace...), msgType...), '/'), h.Version...)
	x.out = append(x.out, `">`...)
	x.path = append(x.path, step{name: "Envelope"})
	x.walkHeader(nil)
	x.group("Document", func() { d.walk(x) })
	x.leave("Envelope")
	if len(x.out) > MaxSize {
		x.fail("the message is longer than %d bytes", MaxSize)
	}
	if x.err != nil {
		return nil, x.err
	}
	return x.out, nil
}

// Validate says whether Build, for a participant's header, would take the message: an *InvalidError when not.
func Validate(d Document) error {
	x := writing(&Header{MsgType: d.MsgType()})
	x.noHeader = true
	x.group("Document", func() { d.walk(x) })
	return x.err
}

func shorten(s string) string { return s[:min(len(s), maxVersion)] }
