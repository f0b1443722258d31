// Package pkcs11 signs with an RSA key that never leaves its token: a hardware security
// module, a smart card, or SoftHSM. [Open] gives a [crypto.Signer] for
// [signature.FromCertificate].
//
// A token is reached through its vendor's library, a C library that is loaded into the
// process. So this package needs cgo, and is one of its own: packages that import it still
// build without cgo, and then Open says that it cannot. A vendor's library brings threads
// and crashes of its own; whoever would rather not have them keeps the key in a PEM file.
//
// A key is safe for concurrent use: each signature takes one session of a pool. When the
// token goes away every signature fails until the key is opened anew; nothing reconnects by
// itself.
//
// Source: OASIS PKCS #11 Cryptographic Token Interface Base Specification 2.40.
package pkcs11
