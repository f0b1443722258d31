// Package store is Cabine's truth: the tables, and the statements that keep the laws
// which a database can keep. It is the only home of pgx, goose and sqlc.
//
// # The inbox
//
//	            Receive            MarkPublished            MarkDone
//	(the bank) ---------> received ------------> published ----------> done
//	     |                    |                   |     ^
//	     | poison             | Bury         Bury |     | Republished
//	     v                    v                   v     |
//	dead_letters <----------- dead <--------------+-----+
//
// A message is written once (inbox) and not touched again; a narrow row (inbox_open) says
// that it is not closed yet, and whether it was published. Measured with ten messages of
// 4 KB: marks on the message itself cost the server twice the work of these.
//
//   - Durable before ack. Receive stores a batch and moves the cursor of its slot in
//     one statement and one commit. Only after it returned may the next read go out,
//     which is what tells the bank to forget.
//   - Once. (message_id, source) is unique: what the bank delivers again, on whatever
//     slot, is not stored again and not returned again. Other content under an
//     identifier that is taken is not the same message: it is a dead letter.
//   - Who may move a cursor. A slot's row carries a term; OpenSession takes the slot
//     over by counting it up. Whoever holds an older term moves nothing and stores
//     nothing (ErrStaleTerm): a replica that was paused past its lease does no harm.
//   - Nothing silent. A message is closed in two ways only: done, said by its
//     consumer's own transaction, or dead, with a reason in dead_letters. Everything
//     else is open, is found by Unpublished or Stuck, and goes out again.
//
// # When a call fails
//
// ErrUnavailable means that the database may or may not have done it. Every call may
// be repeated: Receive stores what is missing and moves the cursor again; messages that
// an earlier attempt had stored are not returned a second time and come back through
// Unpublished. ErrStaleTerm is final for the session: open a new one, if the slot is
// still yours.
//
// # Time
//
// Only the database's clock is written and compared. Callers pass ages, never instants.
package store
