package tidy

import (
	"path"
	"regexp"
	"strings"
)

// checkWords refuses words that mark work as not done, and paths of somebody's machine.
func checkWords(t *Tree) []Finding {
	rules := []struct {
		rule, text string
		pattern    *regexp.Regexp
	}{
		{
			"words", "finish it, or write down as an issue what is missing and take the mark out",
			regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK|WIP)\b|(?i)\b(placeholder|for now|not implemented yet|lorem ipsum)\b`),
		},
		{
			"paths", "a path of one machine means nothing on another: make it relative or take it from the environment",
			regexp.MustCompile(`(^|[^\w./*-])/(work|home|root|Users|tmp)/\w`),
		},
	}
	var found []Finding
	for _, name := range t.names() {
		if notOurWords(name) {
			continue
		}
		for i, line := range strings.Split(t.files[name], "\n") {
			for _, r := range rules {
				if word := r.pattern.FindString(line); word != "" {
					found = append(found, Finding{r.rule, name, i + 1, strings.TrimSpace(word) + ": " + r.text})
				}
			}
		}
	}
	return found
}

// notOurWords are files that programs write or others wrote.
func notOurWords(name string) bool {
	switch path.Base(name) {
	case "go.sum", "go.work.sum", ".terraform.lock.hcl", "LICENSE":
		return true
	}
	return strings.Contains("/"+name, "/testdata/") || strings.HasSuffix(name, ".pb.go")
}
