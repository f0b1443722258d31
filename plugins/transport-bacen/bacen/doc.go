// Package bacen is the transport to BACEN's ICOM: HTTP/1.1 over mutual TLS 1.2, one
// connection per slot.
//
// # Why it has its own HTTP client
//
// net/http's client replays a request whose reused connection failed, follows
// redirects and dials in the background; each of these is a request or a connection
// that no permit covers. Here a call is one request written to one connection and one
// answer read from it, nothing else. The only repetition is a second dial when a kept
// connection turns out to be dead before anything was written.
//
// # The connection of a slot
//
// It is opened by the first call under a grant and kept between calls. It is closed by
// a call under another grant, by Connection: close, by an answer that was not read to
// its end (with a reset, so that nothing more leaves the kernel), by Disconnect, and
// when it has been idle or alive for too long. The name is resolved anew for each
// connection and the certificate files are read anew, so that MaxConnectionAge bounds
// how long a re-pointed name or a rotated certificate goes unnoticed.
//
// # What an answer means
//
//	                 read        send        close
//	200              messages    malformed   ok
//	201              malformed   ok          malformed
//	204              no message  malformed   ok
//	404, 410         Gone        Rejected    ok
//	429              Throttled   Throttled   Throttled
//	other 4xx        Rejected    Rejected    Rejected
//	5xx              Unavailable Unavailable Unavailable
//	anything else    Malformed   Malformed   Malformed
//
// An answer that ends with the connection, without a length, is not proof that the
// bank has finished: it counts as an unknown outcome.
package bacen
