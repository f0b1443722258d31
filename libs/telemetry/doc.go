// Package telemetry makes what every service shows of itself: a JSON logger that
// cannot print personal data or credentials, a metrics registry and health checks.
//
// Redaction happens in the handler, so that nobody has to remember it: messages,
// attribute values of every type, nested groups, errors and attributes given to
// Logger.With all pass through it. What is masked:
//
//   - by form, anywhere: CPF, CNPJ (also the alphanumeric one of 2026), phone
//     numbers, e-mail addresses, passwords in URLs and key=value strings, bearer
//     tokens, JWTs, private keys in PEM;
//   - by attribute name: credentials, documents, Pix keys (an EVP is a UUID like
//     any other, only its name gives it away) and account numbers.
//
// What must stay readable is what identifies a payment without identifying a
// person: EndToEndId, MsgId, PI-ResourceId, ISPB, times, ports. They stay because a
// document number is recognised only when it stands alone between characters that are
// neither letters nor digits; the digits inside a longer identifier never match.
//
// The package starts no goroutine of its own; a health check that outlives its timeout
// keeps one goroutine until it returns, and at most one.
package telemetry
