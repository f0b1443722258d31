// Package order takes orders: what a client asks for becomes a booked payment or return with its row in the outbox, or a
// Refusal that says why not. Whoever brings orders (HTTP, a stream) brings them here, so that all of them are read by the
// same rules and pass the same Gate.
//
// # An order
//
//	Read: the form is judged, a name is given -> Book, in ONE transaction of the caller {
//	    the Gate lets the order pass; payments row (created) and its first event; outbox row (pacs.008)
//	}
//
// The caller keeps the client's key in the same transaction, so that a crash leaves the order and its answer, or
// neither. An EndToEndId is booked once, whatever the key and wherever it came by. A return has its name from its client
// and needs no key: it is locked with its original.
//
// # Kinds of no
//
// Malformed, Refused and Taken; see Class. No Refusal repeats a value.
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
// UTF-8, one object, every member known by its exact name and at most once, every value a text or an object: a number or
// null in place of a text is refused. The caller bounds its size, and with it its depth.
//
// # What is not here
//
// Pix Saque and Pix Troco (purposes OTHR and GSCB) and split payment need parts of pacs.008 that an order does not carry.
// Limits on money are the Gate's, and Rules, the default, has none.
package order
