package icomtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strings"

	"github.com/cabine-pix/cabine/libs/icom"
)

// pull serves a start and a continuation: what was delivered before is confirmed, then
// the read waits for messages.
func (c *conn) pull(ctx context.Context, t task) *answer {
	q := c.desk.queue
	s, refused := c.stream(t)
	if refused != nil {
		return refused
	}
	multipart := strings.Contains(t.req.get("Accept"), icom.TypeMultipart)
	most := 1
	if multipart {
		most = icom.MaxMessages
	}
	batch := q.take(ctx, s, most, c.bank.cfg.Hold+t.extraHold)
	if ctx.Err() != nil {
		return nil
	}
	a := &answer{status: http.StatusNoContent, header: make([]field, 0, 4)}
	if len(batch) > 0 {
		a.status = http.StatusOK
		c.fill(a, batch, multipart, t)
	}
	if cursor := q.pause(s); !a.cursorless {
		a.set(icom.HeaderPullNext, c.bank.pullNext(c.channel, t.ispb, cursor, t.req.get("Host")))
	}
	return a
}

// stream opens or resumes the stream that a read asks for, or refuses.
func (c *conn) stream(t task) (*stream, *answer) {
	q := c.desk.queue
	if t.kind == KindPull {
		s, over := q.resume(t.cursor)
		switch {
		case s != nil:
			return s, nil
		case over:
			return nil, problem(http.StatusGone, "gone", "Recurso não está mais disponível")
		}
		return nil, problem(http.StatusNotFound, icom.ProblemNotFound, "Recurso não encontrado")
	}
	limit := 0
	if c.bank.cfg.CountBy == ByStreams {
		limit = c.bank.cfg.Limit
	}
	s, streams := q.start(limit)
	if s == nil {
		c.desk.ledger.violate(c.now(), Violation{Kind: OverStreams, Count: streams + 1, Limit: limit})
		return nil, tooMany(0)
	}
	return s, nil
}

// stop serves a DELETE, which confirms the last delivery and ends the stream.
func (c *conn) stop(t task) *answer {
	s, _ := c.desk.queue.resume(t.cursor)
	if s == nil {
		return problem(http.StatusGone, "gone", "Recurso não está mais disponível")
	}
	c.desk.queue.close(s)
	return &answer{status: http.StatusOK}
}

// fill writes the messages into the answer, spoiled if a fault says so.
func (c *conn) fill(a *answer, batch []*message, multipart bool, t task) {
	how := c.bank.faults[c.channel].strike(t.kind, spoiling).Malformed
	parts := make([]part, len(batch))
	for i, m := range batch {
		parts[i] = part{id: m.id, contentType: icom.TypeMessage, body: m.body}
	}
	c.bank.spoil.parts(how, parts)
	if multipart {
		// A space makes it a parameter that must be quoted, as in the manual's example.
		boundary := "pi " + batch[0].id
		a.set("Content-Type", icom.TypeMultipart+`; boundary="`+boundary+`"`)
		c.body = joinParts(c.body[:0], parts, boundary)
		a.body = c.body
	} else {
		a.set("Content-Type", parts[0].contentType)
		if parts[0].id != "" {
			a.set(icom.HeaderResourceID, parts[0].id)
		}
		a.body = parts[0].body
	}
	if t.req.get("Accept-Encoding") == "gzip" && !c.bank.cfg.NoGzip {
		a.set("Content-Encoding", "gzip")
		a.body = zip(a.body)
	}
	c.bank.spoil.answer(how, a)
}

// part is one message on its way.
type part struct {
	id, contentType string
	body            []byte
}

// joinParts appends a multipart body to out.
func joinParts(out []byte, parts []part, boundary string) []byte {
	for _, p := range parts {
		out = append(out, "--"...)
		out = append(out, boundary...)
		out = append(out, "\r\nContent-Type: "...)
		out = append(out, p.contentType...)
		if p.id != "" {
			out = append(out, "\r\n"+icom.HeaderResourceID+": "...)
			out = append(out, p.id...)
		}
		out = append(out, "\r\n\r\n"...)
		out = append(out, p.body...)
		out = append(out, "\r\n"...)
	}
	out = append(out, "--"...)
	out = append(out, boundary...)
	return append(out, "--\r\n"...)
}

func zip(body []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	// A bytes.Buffer never fails.
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}
