// Package statement is the format of the files in which the other side says what it settled: the entries of our PI account,
// and what the settlement bank paid of a cycle's net lines. It reads and writes them as a stream, in memory that does not grow
// with the file.
//
// # Whose format it is
//
// Ours. BACEN announces the file of entries by a camt.052, whose AddtlRptInf is its hash, and serves it as
// .../extrato/<hash>.zip; the layout of what is inside is in none of the sources that we have. What follows is our reading
// of what such a file must say. It stands in this package alone, so that homologation replaces one package. Whoever wrote
// the file is authoritative for what happened; this package only says whether the file is whole and each line readable.
//
// # The file
//
// A ZIP archive with exactly one member, a text in UTF-8. Lines end in LF or CRLF, the last one may do without; fields are
// separated by ';', never quoted and never empty but where it is said. A header, one line per record, a trailer.
//
//	0;EXTRATO;1;<ISPB>;<from>;<to>                                              entries of the PI account in [from, to)
//	1;<id>;<original>;<payment|return>;<D|C>;<amount>;<settled at>;<ISPB of the other participant>
//	9;<records>;<sum of debits>;<sum of credits>
//
//	0;LIQUIDACAO;1;<ISPB>;<cycle date>;<cycle type>                             net lines of one cycle that were paid
//	1;<ISPB of the party>;<D|C>;<amount>;<paid at>
//	9;<records>;<sum of debits>;<sum of credits>
//
//	id           EndToEndId of a payment, RtrId of a return
//	original     of a return: the EndToEndId that it gives back; of a payment: empty
//	D, C         the account of the header's ISPB was debited, or credited
//	amount, sum  reais with a point and two decimals, "12.34"; an amount is not zero
//	instants     UTC with three decimals, "2026-12-01T12:34:56.789Z"
//	cycle date   "2026-12-01"; cycle type: a to z, 0 to 9, '_', '-', at most 32
//	ISPB         eight of 0 to 9 and A to Z
//
// Records may come in any order, and an entry may come twice: what the bank says twice is kept twice, for reconciliation to
// see.
//
// # The hash
//
// BACEN names a file by the hash of its content, and says that empty files share a name. An archive of the same text
// differs with the program that packed it, so the content is the text: the hash is the SHA-256 of the member's bytes as they
// are, in 64 hexadecimal digits, lower case. Name returns a file's name from it, Hash the hash from a name.
//
// # What is refused
//
//   - A line that cannot be read, between a header and a trailer that can: a *RowError, with its line and reason. Reading
//     goes on. It counts as a record; what it was worth counts as far as its side and amount could be read, and if they could
//     not, the sums of the trailer are not compared.
//   - A file that is cut, whose trailer disagrees, with a wrong header, with anything after the trailer, in another encoding
//     than UTF-8, with a line or a text that is too long, with no member or more than one, or packed in another way: a
//     *FileError, and no more. What was read of it before means nothing: read a file to its end before anything of it is
//     believed.
//
// A reader returns io.EOF only after the trailer agreed, nothing came after it and the checksum of the archive held.
//
// # Bounds
//
// Limits bounds the text and each line; of the archive's directory no more is read than one member can need. Sums that do
// not fit an amount are refused. No name inside the archive is ever used as a path.
package statement
