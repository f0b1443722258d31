package icomtest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/pix"
)

// task is a request that the bank will work on.
type task struct {
	req        *request
	kind       Kind
	ispb       pix.ISPB // of the path
	cursor     string
	inProgress int // requests in progress, this one among them
	extraHold  time.Duration
}

// route reads the path. The kinds of a path that exists are kept for a wrong method, which serve refuses.
func route(req *request) (kind Kind, ispb pix.ISPB, cursor string) {
	path, _, _ := strings.Cut(req.target, "?")
	if path == icom.PathCatalogIn || path == icom.PathCatalogOut {
		return KindCatalog, "", ""
	}
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	switch {
	case len(parts) == 3 && parts[0] == "in" && parts[2] == "msgs":
		return KindSend, pix.ISPB(parts[1]), ""
	case len(parts) == 4 && parts[0] == "out" && parts[2] == "stream" && parts[3] == "start":
		return KindStart, pix.ISPB(parts[1]), ""
	case len(parts) == 4 && parts[0] == "out" && parts[2] == "stream":
		if req.method == http.MethodDelete {
			return KindDelete, pix.ISPB(parts[1]), parts[3]
		}
		return KindPull, pix.ISPB(parts[1]), parts[3]
	}
	return KindOther, "", ""
}

// checkHeaders keeps the list of icom.AllowedHeaders and the few values the bank knows.
func (b *Bank) checkHeaders(req *request) *refusal {
	host := req.get("Host")
	switch {
	case host == "":
		return malformedRequest("Host não informado")
	case host != icom.HostHeader(host):
		r := invalidHeader("Host with a port: " + host)
		r.reset = !b.cfg.AnswerHostPort
		return r
	}
	for _, f := range req.header {
		if !icom.HeaderAllowed(f.name) {
			return invalidHeader("unexpected " + f.name)
		}
	}
	for _, accept := range strings.Split(req.get("Accept"), ",") {
		switch media, _, _ := strings.Cut(strings.TrimSpace(accept), ";"); media {
		case "", "*/*", icom.TypeXML, icom.TypeMultipart:
		default:
			return notAcceptable("Accept: " + accept)
		}
	}
	if enc := req.get("Accept-Encoding"); enc != "" && enc != "gzip" {
		return notAcceptable("Accept-Encoding: " + enc)
	}
	return nil
}

func notAcceptable(broke string) *refusal {
	return &refusal{
		status: http.StatusNotAcceptable, problem: "notAcceptable",
		title: "Formato de resposta não disponível", broke: broke,
	}
}

// serve does the work of a request.
func (c *conn) serve(ctx context.Context, t task) *answer {
	if t.kind == KindOther {
		return problem(http.StatusNotFound, icom.ProblemNotFound, "Recurso não encontrado")
	}
	if want := method(t.kind); t.req.method != want {
		return problem(http.StatusMethodNotAllowed, "methodNotAllowed", "Método não permitido")
	}
	if t.kind == KindCatalog {
		return catalog(t.req.target)
	}
	if t.ispb != c.desk.ispb {
		detail := "path of " + strconv.QuoteToASCII(string(t.ispb))
		c.desk.ledger.violate(c.now(), Violation{Kind: WrongISPB, Detail: detail})
		return problem(http.StatusForbidden, icom.ProblemForbidden, "Certificado não autorizado para o participante")
	}
	if c.bank.cfg.CountBy == ByRequests && t.inProgress > c.bank.cfg.Limit {
		return tooMany(0)
	}
	switch t.kind {
	case KindSend:
		return c.send(t)
	case KindDelete:
		return c.stop(t)
	case KindStart, KindPull, KindCatalog, KindOther:
	}
	return c.pull(ctx, t)
}

func method(k Kind) string {
	switch k {
	case KindSend:
		return http.MethodPost
	case KindDelete:
		return http.MethodDelete
	case KindStart, KindPull, KindCatalog, KindOther:
	}
	return http.MethodGet
}

// tooMany is 429; retry below a second counts as one, zero gives no Retry-After.
func tooMany(retry time.Duration) *answer {
	a := problem(http.StatusTooManyRequests, "tooManyRequests", "Limite de requisições excedido")
	if retry > 0 {
		a.set(icom.HeaderRetryAfter, strconv.Itoa(int((retry+time.Second-1)/time.Second)))
	}
	return a
}

func faultAnswer(f Fault) *answer {
	var a *answer
	switch f.Status {
	case http.StatusTooManyRequests:
		a = tooMany(0)
	case http.StatusInternalServerError:
		a = &answer{status: f.Status, header: []field{{"Content-Type", "text/plain"}}, body: []byte("erro interno\n")}
	default:
		a = problem(f.Status, icom.ProblemServiceUnavailable, "Serviço indisponível")
	}
	if f.RetryAfter > 0 {
		a.set(icom.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	}
	return a
}

// catalog tells the versions that the bank takes or gives.
func catalog(target string) *answer {
	names := accepted()
	if target == icom.PathCatalogOut {
		names = emitted()
	}
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><Catalog>`)
	for _, n := range names {
		b.WriteString("<Message>" + n + "</Message>")
	}
	b.WriteString("</Catalog>")
	return &answer{
		status: http.StatusOK, header: []field{{"Content-Type", icom.TypeMessage}}, body: []byte(b.String()),
	}
}
