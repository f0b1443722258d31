package tidy

import "path"

// exception excuses the findings of one rule in the files that a pattern matches.
type exception struct {
	rule    string
	pattern string // as path.Match has it
	reason  string
}

// exceptions are all there are. Each says why the rule does not fit; "it is long" is not a reason.
func exceptions() []exception {
	return []exception{
		{"words", "test/tidy/*.go", "names the words that it forbids"},
		{"words", ".golangci.yml", "names the context that it forbids"},
		{"paths", "test/tidy/*.go", "names the paths that it forbids"},
	}
}

// excuse takes out the findings that an exception covers, and adds one for each exception that covers nothing.
func excuse(findings []Finding, allowed []exception) []Finding {
	used := make([]bool, len(allowed))
	var left []Finding
	for _, f := range findings {
		excused := false
		for i, e := range allowed {
			if ok, err := path.Match(e.pattern, f.Path); err == nil && ok && e.rule == f.Rule {
				excused, used[i] = true, true
			}
		}
		if !excused {
			left = append(left, f)
		}
	}
	for i, e := range allowed {
		if !used[i] {
			left = append(left, Finding{Rule: "exceptions", Path: "test/tidy/exceptions.go", Text: "the exception from " +
				e.rule + " for " + e.pattern + " is needed no more: remove it"})
		}
	}
	return left
}
