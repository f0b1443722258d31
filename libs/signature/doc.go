// Package signature signs and verifies messages of the SPI: XMLDSig in the profile of
// BACEN's security manual, over keys that stay behind [crypto.Signer].
//
// # The profile
//
// The signature is the only content of AppHdr/Sgntr, under the prefix ds, and declares its
// namespace itself. SignedInfo names exclusive canonicalisation, RSA with SHA-256, and three
// references in this order, each digested with SHA-256 and transformed by exclusive
// canonicalisation:
//
//	1  URI="#<Id>"  the ds:KeyInfo element, xmlns:ds declared on it
//	2  URI=""       the AppHdr element, its default namespace declared on it, Sgntr kept and
//	                empty (transform enveloped-signature first)
//	3  no URI       the Document element, its default namespace declared on it
//
// KeyInfo holds issuer and serial number of the certificate and not the certificate: it is
// found among those that the verifier was given, which are trusted as they are. The issuer
// is written as "CN=..., OU=..., O=ICP-Brasil, C=BR" ([IssuerName]), the serial in decimal.
//
// References 2 and 3 are the SPI's own: to a general XMLDSig library URI="" is the whole
// document and no URI is nothing at all. So this package finds the parts itself, and takes
// the general library for exclusive canonicalisation alone.
//
// # What Verify promises
//
// A message that passes [Verifier.Verify] has no content that is not signed: beside AppHdr
// and Document there is nothing but the tag of Envelope, white space and an XML declaration.
// One message can be read in one way only: whoever parses the bytes that were verified sees
// what was signed. To that end a message is refused that has
//
//   - a document type, an entity of its own, a comment, a processing instruction or a CDATA
//     section anywhere;
//   - a second Envelope, AppHdr, Document, Sgntr, Signature, SignedInfo, SignatureValue or
//     KeyInfo anywhere, in any namespace;
//   - any namespace declaration but the default one on Envelope and ds on the signature, any
//     other prefix, and any attribute with a prefix;
//   - any attribute named Id, in any case, but that of KeyInfo;
//   - a signature with anything missing, added, in another order or by another algorithm.
//
// White space between elements of the signature is accepted, and white space and carriage
// returns (also written as &#13;) inside base64: the SPI wraps its signature so.
//
// # Canonical octets
//
// A message as our own builder writes it is canonical already, but for the namespace that
// its parts inherit. The scanner notes whether that is so while it reads, and then the
// octets to digest are those of the message with one declaration put in. Everything else
// goes through the library. A fuzz test holds both to the same result.
//
// Sources: Manual de Segurança do SFN, volume II, section 3; Manual de Segurança do Pix;
// XML Signature Syntax and Processing 1.1; Exclusive XML Canonicalization 1.0.
package signature
