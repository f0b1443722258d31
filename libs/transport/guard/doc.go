// Package guard keeps the start deadline of a permit at the last place where it can
// be kept: in the Write under TLS, immediately before the system call.
//
// A Conn is in one of four states:
//
//	open      handshake bytes pass; the first Arm leaves this state for good
//	armed     the next Write is the first of a request: it reads the clock and is
//	          refused at or after the deadline
//	writing   the rest of the same request passes
//	shut      nothing passes until the next Arm
//
// armed becomes writing with the first byte, writing becomes shut when the answer
// begins to arrive, and Disarm shuts at any time. One Arm is therefore at most one
// request. The pause between the check and the system call cannot be closed from
// this side; FirstByte is read after the system call, so that a cool-down that is
// counted from it is long enough even then.
package guard
