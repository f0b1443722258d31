// Package iso20022 holds the messages of the SPI, one file for each, as plain structs: it reads them from their XML and
// writes them to it. Source: the SPI's message catalogue 5.13 and its schemas.
//
// # The shape of a message
//
// A message's walk method is its schema: it names the elements in document order, each with its cardinality and its form,
// and the field that holds it. A walker goes through it twice: reading, when it fills the fields, and writing, when it
// checks and writes them. So what is read and what is written cannot differ.
//
//	Envelope (namespace https://www.bcb.gov.br/pi/<type>/<version>)
//	  AppHdr: Fr, To, BizMsgIdr, MsgDefIdr, CreDt, Sgntr
//	  Document: one root element, which for most messages begins with GrpHdr: MsgId, CreDtTm
//
// # What is read
//
// Exactly the schema: an element that is unknown, missing, repeated or out of order, an attribute, a value of another form
// is a *SyntaxError with its path. Beyond the schema, MsgId equals BizMsgIdr, CreDtTm equals CreDt and NbOfTxs the number of
// transactions. Of XML, only what the SPI uses is understood: elements, text, the five entities and character references.
// Document types, processing instructions, comments and CDATA are refused, and so are prefixes outside the signature:
// nothing expands, and no two readers see two messages in one. Size is bounded by MaxSize, depth by the schema.
// The signature is not looked at, only skipped (Envelope.Signed says whether there is one); libs/signature verifies it.
//
// # What is written
//
// One line, as the SPI writes it, already in the form that exclusive canonicalisation gives, with an empty Sgntr for the
// signer. Values must have their form, and the catalogue's rules between values hold; else an *InvalidError.
//
// # Versions
//
// Two adjacent versions of a message are live at once while the SPI changes over: Versions says which are accepted and
// which is built. The trees are those of catalogue 5.13; what the version before did not have is said where it stands.
//
// Neither kind of error carries a value: values are names, documents and accounts of people.
package iso20022
