// Package icom is the wire of the ICOM, the HTTP interface of BACEN's SPI: paths,
// headers, bodies, identifiers, problems and traffic buckets. It opens no socket and
// keeps no connection; package icomtest plays the bank with it and the transport to
// BACEN plays the participant.
//
// # The protocol
//
// HTTP/1.1 over mutual TLS 1.2 ([CipherSuite]). Each channel, primary and secondary,
// has its own host and port. A participant uses only its own ISPB in the path; the
// channel certificate decides who it is.
//
//	send       POST   /api/v1/in/{ispb}/msgs           201, PI-ResourceId
//	open       GET    /api/v1/out/{ispb}/stream/start  200 or 204, PI-Pull-Next
//	continue   GET    what PI-Pull-Next said           200 or 204, PI-Pull-Next
//	close      DELETE what PI-Pull-Next said           200; 410 is success too
//	versions   GET    /api/v1/in/catalog, /api/v1/out/catalog
//
// A read waits at the bank until one message exists or the hold ends (204). With
// Accept: multipart/mixed it brings up to [MaxMessages] messages, with
// application/xml one. The messages of a participant are shared among its streams.
//
// There is no acknowledgement but the next request of the stream: a GET or DELETE on
// the last PI-Pull-Next tells the bank that the previous delivery was received, and
// the bank forgets it. So the next request is made only after the delivery is stored.
// A delivery that is never confirmed comes again, to any stream of the participant,
// under the same PI-ResourceId.
//
// A send carries 1 to [MaxMessages] messages. The bank stores them and answers 201
// with one identifier each; it validates later and complains through admi.002.
//
// # Statuses
//
// 4xx: nothing stored, do not repeat unchanged. 404 and 410: the stream is gone, open
// another. 429: too many at once, or the traffic bucket is empty (Retry-After). 5xx on
// a send: stored or not, nobody knows. Errors carry a [Problem].
//
// # Strictness
//
// Only the headers of [HeaderAllowed] may be sent: any other gives 400 invalidHeader. Host
// carries no port: the bank resets the connection otherwise. A body has a length or is
// chunked, never both. gzip covers the whole body, also a multipart one.
//
// Sources: ICOM manual 1.12 section 2, and the answers of BACEN's staff in
// bacen/pix-perguntas-e-respostas.
package icom
