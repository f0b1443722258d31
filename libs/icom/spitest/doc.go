// Package spitest is the SPI behind the bank of package icomtest: the participants' PI accounts, the orders between
// them, and the judge of the books. icomtest carries messages and counts requests; this package reads what was sent,
// moves the money and answers. It is for tests, the demonstration and the benchmarks.
//
// # Protocol
//
// A participant sends pacs.008 or pacs.004 of 1 to 10 operations. Every operation is an [Order] of its own from then on:
//
//	order ----> checked --RJCT to the sender----> rejected
//	               |
//	            waiting: forwarded to the credited participant
//	               |
//	               +-- ACSP, balance enough ----> settled   ACSC to the debited, ACCC to the credited
//	               +-- ACSP, balance short -----> rejected  AM04 to both
//	               +-- RJCT --------------------> rejected  its reason, to the debited alone
//	               +-- silence to the limit ----> rejected  AB03 to both
//
// settled and rejected are final. Money moves in the step to settled and nowhere else: one debit and one credit, at once.
//
// The limit is AccptncDtTm + [Config].SettleWithin for PAGPRI, the receipt + SettleWithin for PAGFRD and for returns,
// AccptncDtTm + ScheduledWithin for PAGAGD. An AccptncDtTm that lies ahead counts as the receipt. An order that arrives
// later than AccptncDtTm + OrderWithin is refused with AB11 and forwarded to nobody.
//
// The SPI writes every message it sends itself: own header, own MsgId (M, 00038166, the milliseconds in nine digits of
// base 36, fourteen random characters), own signature, the operations unchanged. What waits for one participant, channel
// and type goes out together, up to 10 operations a message: while one message is being signed, the next one fills.
//
// # Identity and authority
//
// The certificate of the connection says who sends (the bank's matter); Fr, the ISPB in BizMsgIdr and the signature's
// certificate must be that participant's own. Who is debited must be the sender (AGNT), who answers must be the credited.
// Orders are known by EndToEndId or RtrId, never by MsgId.
//
// # Failures
//
// A fault of the message is told by admi.002 on the channel on which it came, and none of its operations count: schema,
// version, signature, Fr, To, BizMsgIdr, a pacs.002 from somebody who is not credited, a question about somebody else's
// account. A fault of an operation is told by pacs.002 RJCT, and the others of its message go on.
//
// The same operation again, under any MsgId, within 24 hours: the final answer is told again, or nothing while there is
// none. This is our reading of the idempotency that the catalogue asks for; Config.RefuseRepeats answers RJCT DUPL
// instead, which the sender must not take for the fate of its order. Another operation under a known identifier is
// RJCT DUPL. Neither changes what became of the first.
//
// A pacs.002 for an order in a final state changes nothing and is counted ([Counters].LateAnswers after AB03,
// RepeatedAnswers otherwise). What the real SPI does with it is not published.
//
// An order moves first and its notices are queued at the bank after that, so that what a participant was told always
// stands in the books. [Fault] rules drop, repeat and delay notices and answers by seed; the books do not depend on them.
//
// # Questions
//
// A camt.060 asks about the sender's own account. Balances (CSA) are answered by camt.053, one entry by camt.054, the
// entries of a period (REL) by a file and a camt.052 that names it. Other questions are refused, as is a period that does
// not end after it begins, ends in the future or is longer than Config.LongestPeriod: what the real SPI says to those is
// not published.
//
//	question ----> period taken --file made--> on the shelf --camt.052--> fetched, any number of times
//	   |                |                          |
//	   +-- admi.002     +-- too large: admi.002    +-- others need the room: 404
//
// A file (package statement) has what was settled in [from, to) on the account, debits and credits, in the order of
// settlement. The SPI settles nothing any more before an instant up to which it made a file, so that the same question has
// the same answer. [SPI.ServeFiles] is the file host: who may fetch a file is decided by the certificate of the connection,
// which must be of the ISPB in the path. The hash in camt.052 is that of the text, and the name.
//
// Fault rules lose, double, alter and invent entries in files, tell a false hash, delay or drop what is told, cut, break off
// and delay downloads. [Report].Files says for each file what was done to which entries: whoever compares must find exactly
// these. A download has a fate of its own, an entry the same one in every file of its account.
//
// # Books
//
// [SPI.Books] recomputes every account from the orders and compares: balance = opening + credits - debits; an order is
// settled at most once; returns do not exceed their payment; the sum of all balances never changes. What does not hold
// is in [Report].Broken.
//
// Sources: reference points of ICOM manual 1.12, catalogue 5.13, and the answers of BACEN's staff in
// bacen/pix-perguntas-e-respostas (366, 426 on timeouts and settlement, 442 on resending, 184 on a foreign pacs.002).
package spitest
