// Package api is the HTTP interface of the sending side: orders and returns come in, and every payment is explained.
// Its words are those of BACEN's Pix API (endToEndId, valor, horario, devolucoes, rtrId, status); openapi.yaml, which is
// served with it, is its contract.
//
// # An order
//
//	POST /v1/pix -> token, throttle -> read and judge the form -> claim the key -> ONE transaction {
//	    the order.Gate lets it pass; payments row (created) and its first event; outbox row (pacs.008);
//	    the answer is kept with the key
//	} -> Announcer -> answer
//
// So a crash leaves the order and its answer, or neither, and the same order sent again under its key finds its answer,
// byte for byte. The claim alone proves nothing: it is given back when the order is refused or fails, and one whose
// process died falls to the next request after store.KeyAbandonedAfter; should the first live after all, the second of
// the two transactions does not commit. While a claim stands, the same request is told 409.
//
// A key belongs to a client, by the name of its token, and for 24 hours to one request: method, path and body. An
// EndToEndId is booked once, whatever the key. A return (PUT .../devolucao/{id}) has its name from the client and needs
// no key: it is locked with its original.
//
// # Three kinds of no
//
//   - 400: the request cannot be read or a field has not its form. Nothing depends on when or by whom it was sent.
//   - 422: it was read, and a rule of the gate, or the books, refuse it; or it would go out on a channel that is off.
//   - 409: something exists or is under way under the same name.
//
// Each is an application/problem+json whose violacoes name the fields. No answer repeats a value.
//
// # JSON
//
// At most Config.MaxBody bytes. How strictly they are read, what a text may hold, and what no order carries: see package
// order, which reads, judges and books orders wherever they come from.
package api
