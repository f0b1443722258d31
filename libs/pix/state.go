package pix

import (
	"fmt"
	"slices"
)

// Kind says what a payment row is.
type Kind string

// The kinds.
const (
	// Payment is a pacs.008, under its EndToEndID.
	Payment Kind = "payment"
	// Return is a pacs.004, under its ReturnID.
	Return Kind = "return"
)

// Direction says who began it, seen from the participant whose books these are.
type Direction string

// The directions.
const (
	// Out: we ordered it; our account is debited.
	Out Direction = "out"
	// In: the SPI forwarded it to us; our account is credited.
	In Direction = "in"
)

// State is where a payment or a return stands.
type State string

// The states. An outgoing one begins in Created, an incoming one in Accepted or Rejected.
const (
	// Created: ours, in the outbox, not known to be at the bank.
	Created State = "created"
	// Sent: ours, and the bank has said that it stored the message (201).
	Sent State = "sent"
	// Unknown: ours, and a send ended without an answer. It is never ordered again under another identifier.
	Unknown State = "unknown"
	// Accepted: incoming, and we answered ACSP; the SPI has not said how it ended.
	Accepted State = "accepted"
	// Settled: the SPI moved the money (ACSC to the payer's side, ACCC to the receiver's).
	Settled State = "settled"
	// Rejected: no money moved, and none will.
	Rejected State = "rejected"
)

// States lists all states.
func States() []State { return []State{Created, Sent, Unknown, Accepted, Settled, Rejected} }

// ParseState reads a state and refuses everything else.
func ParseState(s string) (State, error) {
	if st := State(s); slices.Contains(States(), st) {
		return st, nil
	}
	return "", fmt.Errorf("state %.24q is none of %v", s, States())
}

// Final reports that the state is never left.
func (s State) Final() bool { return s == Settled || s == Rejected }

// Next lists the states that may follow. The SPI's answer may overtake our own record of
// having sent, so a final state may follow Created directly.
func (s State) Next() []State {
	switch s {
	case Created:
		return []State{Sent, Unknown, Settled, Rejected}
	case Sent:
		return []State{Settled, Rejected}
	case Unknown:
		return []State{Sent, Settled, Rejected}
	case Accepted:
		return []State{Settled, Rejected}
	case Settled, Rejected:
	}
	return nil
}

// May reports whether next may follow s.
func (s State) May(next State) bool { return slices.Contains(s.Next(), next) }
