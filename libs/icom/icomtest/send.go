package icomtest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/cabine-pix/cabine/libs/icom"
)

// send stores what a participant posts. What the answer says depends on HTTP alone, never on the messages.
func (c *conn) send(t task) *answer {
	messages, refused := c.bank.unpack(t.req)
	if refused != nil {
		return refused
	}
	q := c.desk.queue
	types := make([]string, len(messages))
	for i, m := range messages {
		types[i] = messageType(m)
	}
	if !c.bank.cfg.Unmetered {
		if wait := q.admit(types); wait > 0 {
			return tooMany(wait)
		}
	}
	ids := q.store(len(messages))
	for i, m := range messages {
		if !c.bank.cfg.Unmetered {
			q.debit(types[i], icom.Cost(types[i], operations(m)))
		}
		received := Received{Channel: c.channel, ISPB: t.ispb, ResourceID: ids[i], Body: m}
		if c.bank.cfg.OnReceive != nil {
			c.bank.cfg.OnReceive(received)
		}
		if c.bank.cfg.Validates {
			c.complain(received)
		}
	}
	return &answer{status: http.StatusCreated, header: []field{{icom.HeaderResourceID, strings.Join(ids, ",")}}}
}

// unpack takes the messages out of a request's body.
func (b *Bank) unpack(req *request) ([][]byte, *answer) {
	body := req.body
	switch enc := req.get("Content-Encoding"); enc {
	case "":
	case "gzip":
		var refused *answer
		if body, refused = unzip(body, b.cfg.MaxBody); refused != nil {
			return nil, refused
		}
	default:
		return nil, problem(http.StatusUnsupportedMediaType, "contentEncoding", "Codificação não suportada")
	}
	media, params, err := mime.ParseMediaType(req.get("Content-Type"))
	switch {
	case err != nil:
		return nil, unsupported()
	case media == icom.TypeXML:
		if refused := charset(params); refused != nil {
			return nil, refused
		}
		return [][]byte{body}, nil
	case media == icom.TypeMultipart && params["boundary"] != "":
		return splitParts(body, params["boundary"])
	default:
		return nil, unsupported()
	}
}

func splitParts(body []byte, boundary string) ([][]byte, *answer) {
	bad := func(why string) *answer { return problem(http.StatusBadRequest, "badRequest", why) }
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	var out [][]byte
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, bad("Corpo multipart inválido")
		}
		if len(out) == icom.MaxMessages {
			return nil, bad("Mais de dez mensagens na requisição")
		}
		media, params, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil || media != icom.TypeXML {
			return nil, unsupported()
		}
		if refused := charset(params); refused != nil {
			return nil, refused
		}
		message, err := io.ReadAll(p)
		if err != nil {
			return nil, bad("Corpo multipart inválido")
		}
		out = append(out, message)
	}
	if len(out) == 0 {
		return nil, bad("Nenhuma mensagem na requisição")
	}
	return out, nil
}

func unzip(body []byte, most int) ([]byte, *answer) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(r, int64(most)+1))
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, "badRequest", "Corpo gzip inválido")
	}
	if len(body) > most {
		return nil, problem(http.StatusRequestEntityTooLarge, "tooLarge", "Mensagem maior que o permitido")
	}
	return body, nil
}

func charset(params map[string]string) *answer {
	if strings.EqualFold(params["charset"], "utf-8") {
		return nil
	}
	return problem(http.StatusBadRequest, icom.ProblemCharset, "Charset não suportado")
}

func unsupported() *answer {
	return problem(http.StatusUnsupportedMediaType, "contentType", "Tipo de conteúdo não suportado")
}

// messageType returns the start of MsgDefIdr, "pacs.008", without parsing; empty if it is not found.
func messageType(body []byte) string {
	_, rest, ok := bytes.Cut(body, []byte("MsgDefIdr>"))
	if !ok || len(rest) < len("pacs.008") {
		return ""
	}
	return string(rest[:len("pacs.008")])
}

// operations counts the transactions of a message, without parsing.
func operations(body []byte) int {
	return max(bytes.Count(body, []byte("CdtTrfTxInf>")), bytes.Count(body, []byte("TxInfAndSts>"))) / 2
}
