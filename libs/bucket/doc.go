// Package bucket is files that others leave for us, and we for ourselves: a directory now, an S3 bucket by configuration. It
// is the only home of gocloud.dev.
//
// # Protocol
//
// Whoever writes an object is authoritative for its content; the bucket only says what there is. An object has a name and a
// version, which changes when it is written again: its size, the time of its last change, and its MD5 where the bucket
// knows one. Nothing is ever deleted or changed in place here.
//
//   - List tells what there is, page by page: memory does not grow with the bucket.
//   - Fetch copies one object to a local file without a name, so that a process that is killed leaves none behind, and which
//     is read from any place. An object that is larger than allowed, or not of the size that List told, is not handed over.
//   - Put writes an object whole or not at all: who lists beside it sees the old one or the new one.
//
// # Failures
//
// ErrNotFound: the object is not there any more. ErrTooLarge: it is larger than Fetch was allowed. ErrChanged: it is being
// written, or was since it was listed; list again. Everything else is the way to the bucket: try again later.
//
// The bucket is opened at its first use, and again at the next one if that fails: New needs neither a network nor the
// directory.
package bucket
