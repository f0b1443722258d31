//go:build !race

package main

// raced says that the race detector runs.
const raced = false
