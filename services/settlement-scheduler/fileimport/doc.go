// Package fileimport brings the bank's files from a bucket into the tables, on one replica.
//
// # Who is authoritative
//
// The bank, for what a file says: package statement reads it. Postgres, for what was imported: a content is imported once,
// whatever it is named and however often it comes. The bucket only says what there is; nothing in it is changed or deleted.
//
// # What becomes of an object
//
//	          listed, ends in .zip, not seen in this version
//	object ---------------------------------------------------> read whole, on this machine
//	                                                                |
//	    cut, trailer disagrees, other encoding, other participant,  |   its content was imported before
//	    named by another hash, no line can be read                  |
//	  refused <-----------------------------------------------------+------------------------------------> known
//	                                                                |
//	                                   its cycle is not closed yet  |   whole
//	  waiting <-----------------------------------------------------+-----> imported, in one transaction
//
//	imported  every row that can be read is in the tables, the others are listed with line and reason
//	refused   nothing of it is; its reason is kept. It is looked into again when the object changes
//	known     nothing changes but that the object was seen
//	waiting   a settlement of a cycle that has no lines: not noted, looked into again at every step
//
// A file is read twice: first to its end, which says whether it is whole and what its content is, and only then into the
// tables. So no row of a file that is refused is ever written, and one that is known costs no write. Memory grows with
// neither the file nor the bucket.
//
// # Failures
//
//   - The term is over: nothing of the file at hand is written, and the leadership ends (store.ErrStaleTerm).
//   - The leader dies in the middle: its transaction is undone, its copy is gone; the next one begins the file again.
//   - The bucket or Postgres does not answer: logged, tried again. One object that cannot be had does not hold up the others.
//   - An object is being written while it is looked at: it is another one at the next step.
//   - The tables refuse what a file says although its form is right: the file is refused.
package fileimport
