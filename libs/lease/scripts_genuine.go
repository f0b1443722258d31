//go:build !cabine_without_cap

package lease

// genuine returns a script as it is.
func genuine(_, text string) string { return text }
