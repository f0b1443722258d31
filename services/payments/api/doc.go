// Package api is the HTTP interface of the sending side: orders and returns come in, and every payment is explained.
// Its words are those of BACEN's Pix API (endToEndId, valor, horario, devolucoes, rtrId, status); openapi.yaml, which is
// served with it, is its contract.
//
// # An order
//
//	POST /v1/pix -> token, throttle -> read and judge the form -> claim the key -> ONE transaction {
//	    the Gate lets the order pass; payments row (created) and its first event; outbox row (pacs.008);
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
//   - 422: it was read, and a rule of the Gate, or the books, refuse it; or it would go out on a channel that is off.
//   - 409: something exists or is under way under the same name.
//
// Each is an application/problem+json whose violacoes name the fields. No answer repeats a value.
//
// # Text
//
// Names, keys and free text go on exactly as they were given, or not at all: nothing is trimmed, folded or replaced.
// The catalogue's types Max140Text and Max77Text restrict the number of characters and nothing else, so letters of any
// script, emoji, and characters that mean something to XML (which the message escapes) pass, counted as the schema
// counts: in code points. Refused is what would not arrive as it was given, or is made to deceive whoever reads it:
// control characters (C0, DEL, C1, so also tabs and line ends, which XML parsers may normalise), line and paragraph
// separators, characters that XML 1.0 cannot carry, the replacement character (a sign that text was damaged before),
// the controls of writing direction, and text that is all blanks.
//
// CPF and CNPJ, the alphanumeric form of 2026 included, are digits and capital letters without punctuation, and their
// check digits are verified; a number of one repeated digit is refused although its check digits fit.
//
// # JSON
//
// At most Config.MaxBody bytes of UTF-8, one object, every member known by its exact name and at most once, every
// value a text or an object: a number or null in place of a text is refused.
//
// # What is not here
//
// Pix Saque and Pix Troco (purposes OTHR and GSCB) and split payment need parts of pacs.008 that an order of this
// interface does not carry. Limits on money are the Gate's, and Rules, the default, has none.
package api
