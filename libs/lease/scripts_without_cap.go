//go:build cabine_without_cap

package lease

import "strings"

// genuine takes the Cap out of the acquire script: every slot is free for everybody.
// Programs built with this tag exist to show that the judges of the Cap can fail. They
// are never shipped: no target of the Makefile but a test and the demo's hidden flag
// builds them.
func genuine(name, text string) string {
	if name != "acquire" {
		return text
	}
	const check = "return not values[s] and cut('until:' .. s, known[3 + 2 * s]) <= now"
	if !strings.Contains(text, check) {
		panic("lease: the check to remove is not there")
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, check, "return true"), "if peer_waits and mine >= share then", "if false then")
}
