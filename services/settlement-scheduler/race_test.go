//go:build race

package main

// raced says that the race detector runs, which takes the processor's time several times over: fifty replicas in one
// process then say nothing about how fast one of them follows another.
const raced = true
