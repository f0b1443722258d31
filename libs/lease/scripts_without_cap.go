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
	for _, check := range []string{
		"'NX', ",
		"if cut('until:' .. s, before, longest) > now then return false end",
		"if peer_waits and (holds[replica] >= share or poorer_waits) then return {'share'} end",
	} {
		if !strings.Contains(text, check) {
			panic("lease: the check to remove is not there: " + check)
		}
		text = strings.ReplaceAll(text, check, "")
	}
	return text
}
