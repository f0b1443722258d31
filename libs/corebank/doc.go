// Package corebank holds the contract between Cabine and a participant's core banking: how
// the core is asked whether to credit an incoming payment, and how both sides prove who
// they are. It does no I/O; Cabine calls, the core serves.
//
// # The call
//
//	POST <configured URL>                      one payment, the body is a Question
//	Content-Type: application/json
//	Cabine-Key-Id: 2026-07                     names the key of the signature
//	Cabine-Timestamp: 1770000000123            milliseconds since 1970 UTC
//	Cabine-Signature: <64 hexadecimal digits>
//
//	200                                        the body is an Answer
//	Cabine-Key-Id, Cabine-Timestamp, Cabine-Signature as above
//
// 5xx and 429 say "not now", and the same question may come again. Every other status, and
// a 200 that is not as described here, is a wrong answer and counts as silence.
//
// # Who is authoritative
//
// The core decides whether its client is credited: existence and state of the account, the
// holder, limits, fraud. Cabine decides the form: what the SPI may be told, by when, and
// what happens when the core is silent. An "aceita" is a promise and not yet money: the
// core credits its client when the payment is settled, never on its own answer.
//
// # Idempotence
//
// The EndToEndId is the key. A question may come again, also at the same time, from another
// replica and after days: the core answers as it did the first time.
//
// # Signatures
//
// HMAC-SHA256 in hexadecimal over text that says what it is, so that a question can never
// pass as an answer:
//
//	question   "cabine-pergunta-v1" LF timestamp LF body
//	answer     "cabine-resposta-v1" LF timestamp LF signature of the question LF body
//
// The answer covers the signature of its question, so that one heard earlier is worth
// nothing and Cabine needs no clock to know it. The core refuses a question whose timestamp
// is off by more than MaxSkew. Each side knows up to two keys by name and signs with the
// first; to rotate, the new key is made known as the second on both sides, then put first,
// then the old one is taken away.
package corebank
