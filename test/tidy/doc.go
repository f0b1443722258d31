// Package tidy is this repository's style as a test: what may import what, how long a function may be, which words and
// links may not stand in a file. A rule that only a document states is forgotten; these fail, and say what to do.
//
// A rule is a function from the tree, or from what `go list` says about it, to findings. The test of the repository
// applies all of them to the real tree; the test of each rule shows it a tree that breaks it.
//
// An exception is an entry in exceptions.go with its reason; one that nothing needs any more is a finding itself.
package tidy
