package icomtest

import (
	"bytes"
	"strings"
	"sync"

	"github.com/cabine-pix/cabine/libs/icom"
)

const (
	// bombBytes is what a GzipBomb grows to, from less than a hundredth of it.
	bombBytes = 64 << 20
	// oversizeBytes is the first message of an Oversize answer.
	oversizeBytes = 16 << 20
)

// spoiler malforms answers.
type spoiler struct {
	once sync.Once
	bomb []byte
}

// parts spoils what is inside the messages' parts.
func (s *spoiler) parts(how Malformed, parts []part) {
	first := &parts[0]
	switch how {
	case NoResourceID:
		first.id = ""
	case WrongCharset:
		for i := range parts {
			parts[i].contentType = "application/xml; charset=iso-8859-1"
		}
	case BrokenXML:
		first.body = first.body[:len(first.body)/2]
	case Oversize:
		body := bytes.Repeat([]byte(" "), oversizeBytes)
		copy(body, first.body)
		first.body = body
	case NoBoundary, NoCursor, TruncatedMultipart, NotGzip, GzipBomb: // around the messages
	}
}

// answer spoils what is around the messages.
func (s *spoiler) answer(how Malformed, a *answer) {
	switch how {
	case NoBoundary:
		// A single message has no boundary to lose, but its type can lie.
		a.set("Content-Type", icom.TypeMultipart)
	case NoCursor:
		a.cursorless = true
	case TruncatedMultipart:
		if at := bytes.LastIndex(a.body, []byte("\r\n--")); at >= 0 {
			a.body = a.body[:at]
		}
	case NotGzip:
		a.set("Content-Encoding", "gzip")
		a.body = []byte(strings.Repeat("texto simples ", 100))
	case GzipBomb:
		a.set("Content-Encoding", "gzip")
		a.body = s.explosive()
	case NoResourceID, WrongCharset, BrokenXML, Oversize: // inside the parts
	}
}

func (s *spoiler) explosive() []byte {
	s.once.Do(func() {
		// A gzip stream may have many members: one of zeros, over and over.
		const member = 1 << 20
		s.bomb = bytes.Repeat(zip(make([]byte, member)), bombBytes/member)
	})
	return s.bomb
}
