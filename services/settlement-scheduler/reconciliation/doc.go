// Package reconciliation compares our books with the bank's account, period by period, on one replica.
//
// # Who is who
//
// The SPI is authoritative for money: its account has an entry or it has none. Postgres holds our books, what was asked, what
// was answered and every line that differs; nothing is remembered elsewhere. The file host is the bank's, but no channel of
// the ICOM: it has another name, no permits and no limit of six, so that it is reached from here and by no transport plugin.
//
// # Periods
//
//	schedule   from where the last one ended to Grace before now, every hour
//	deploy     the same, at once, when the program's version is another than that of the last one; a period has twice Tolerance,
//	           and reaches beyond the instant of the last balance
//	day        a day of São Paulo as a whole, once, after it ended
//	manual     any period: a row that an operator inserts
//
// schedule and deploy form a chain without gaps. What fails is no part of it: the next one begins where the last one ended
// that did not fail, and is at most a day long, so that what was missed is caught up.
//
// # States
//
//	           camt.052             file in the bucket          importer, one statement
//	asked ----------------> announced ----------------> importing ----------------> compared
//	  ^  |                      |                           |
//	  |  +----- no answer ------+--- away, wrong hash ------+--- refused, not imported
//	  |                         |
//	  +---- asked again <-------+-------> failed, with its reason, when it was asked Asks times
//
//	asked      camt.060 for the file of entries, and in the chain for the balance, wait in the outbox: one transaction with the
//	           row. payments sends them and notes the answers in the transaction that closes their messages.
//	announced  the file is downloaded, looked through, and put into the bucket under the hash of its text.
//	importing  the importer, another child of this leader, brings it into the tables.
//	compared   its lines are written, by one statement inside the database.
//
// Each step is one transaction under the leader's term. Whoever takes over reads the row and goes on: a question is asked in
// the transaction that says so, a file that was fetched twice is one object, and lines are written with the state.
//
// # Lines
//
//	missing_here    the bank has it, we have nothing of that name that settled: an incoming order that we never booked, one
//	                that we accepted and were never told about, one that we sent and never heard of, a debit that is not ours
//	missing_there   we have it as settled, the bank has no entry
//	differing       another amount, side, participant, or time by more than Tolerance
//	doubled         the bank has several entries, also on both sides of a border
//
// A payment is compared by the SPI's time of settlement. What settles around a border is found on either side of it. What we
// are told more than a minute late may have been compared before we knew of it: the chain looks for it in the files of its
// time. So Grace should be a minute or more.
//
// In the mode observe lines are only listed. In the mode active the SPI is asked about each but the doubled ones (camt.060 for
// one entry), and the answer settles what it may, in payments: an open payment, and a credit that we did not know and that was
// asked about here. A debit that we do not know is never booked: it is listed, and its alarm says that somebody may have
// sent money in our name. With EntriesMost open lines nothing is asked: that is no orphan but another fault. A line has its
// resolution once our books and the SPI say the same; until then it is open, and counted. What differs in the participant or in
// the time alone is none of the answer's, and stays.
//
// # The balance
//
// It is told for the instant of its question, which is after the period, so that it is judged by the next file: the balance
// before, and the credits less the debits between both instants, must come to it. A difference is named. Movements with the STR
// are in no file that we know, and make one.
//
// # Failures
//
//   - The term is over: nothing was written, and the leadership ends (store.ErrStaleTerm).
//   - No answer within AnswerWithin, the file host away for FetchWithin, a file with another hash, of another account or
//     period (also one that we have), refused by or too late for the importer: asked again by a new question; the answer to an
//     old one counts too.
//   - After Asks questions: failed, with its reason, a metric and an alarm. The chain takes the period up again after Every.
//   - A file with records that could not be read, or with another number of entries than was announced: compared, and its
//     reason says so, with a metric and an alarm.
//
// Logs have counts and no line.
package reconciliation
