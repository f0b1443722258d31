package icom

import (
	"crypto/tls"
	"net/textproto"
	"slices"
	"strings"

	"github.com/cabine-pix/cabine/libs/pix"
)

// MaxMessages is the most messages in one send or one multipart read (ICOM manual 2.2.1, 2.2.2).
const MaxMessages = 10

// Headers of the interface. Go's net/http canonicalises them on both sides; compare
// with textproto.CanonicalMIMEHeaderKey or http.Header's methods.
const (
	// HeaderResourceID names one stored or delivered message. On a send: a comma
	// separated list in the order of the messages. On a read: in each part of a
	// multipart, at the top of a single message.
	HeaderResourceID = "PI-ResourceId"
	// HeaderPullNext is where the stream goes on, a path or a whole URL.
	HeaderPullNext = "PI-Pull-Next"
	// HeaderRetryAfter is in whole seconds.
	HeaderRetryAfter = "Retry-After"
)

// Content types.
const (
	// TypeMessage is the type of one message, alone or as a part.
	TypeMessage = "application/xml; charset=utf-8"
	// TypeXML is what Accept says to read one message at a time.
	TypeXML = "application/xml"
	// TypeMultipart is what Accept says to read up to MaxMessages, and the type of such a body.
	TypeMultipart = "multipart/mixed"
	// TypeProblem is the type of an error's body.
	TypeProblem = "application/problem+xml"
)

// Catalogue paths: the message versions that the bank accepts and emits.
const (
	PathCatalogIn  = "/api/v1/in/catalog"
	PathCatalogOut = "/api/v1/out/catalog"
)

// CipherSuite is the one the bank must support on TLS 1.2, ECDHE-RSA-AES128-GCM-SHA256.
const CipherSuite = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256

// PathSend is where messages are posted.
func PathSend(ispb pix.ISPB) string { return "/api/v1/in/" + string(ispb) + "/msgs" }

// PathStreamStart opens a read stream.
func PathStreamStart(ispb pix.ISPB) string { return "/api/v1/out/" + string(ispb) + "/stream/start" }

// AllowedHeaders lists the request headers that the bank accepts, in canonical form
// (ICOM manual 2.1.8). Everything else is answered with 400 invalidHeader.
func AllowedHeaders() []string {
	return []string{
		"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
		"Cookie", "Host", "Max-Forwards", "Transfer-Encoding", "User-Agent", "Via",
	}
}

// HeaderAllowed reports whether a participant may send the header, in any case of letters.
func HeaderAllowed(name string) bool {
	switch name {
	case "Host", "Accept", "Accept-Encoding", "User-Agent", "Content-Type", "Content-Length":
		return true
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	return slices.Contains(AllowedHeaders(), canonical)
}

// HostHeader returns what Host must say for an address: the name without its port.
func HostHeader(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 && i > strings.LastIndexByte(addr, ']') {
		return addr[:i]
	}
	return addr
}
