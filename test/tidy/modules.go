package tidy

import (
	"path"
	"regexp"
	"strings"
)

// modulePath is the prefix of our modules.
const modulePath = "github.com/cabine-pix/cabine/"

// checkModules compares the go.mod files with go.work and with each other.
func checkModules(t *Tree) []Finding {
	goLine := regexp.MustCompile(`(?m)^go (\S+)$`)
	siblings := regexp.MustCompile(`(?m)^(?:require |\t)` + regexp.QuoteMeta(modulePath) + `(\w+) v`)
	work := t.files["go.work"]
	want := goLine.FindStringSubmatch(work)
	if want == nil {
		return []Finding{{"modules", "go.work", 0, "it has no go line: write one"}}
	}
	requires := map[string][]string{}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:use )?\./(\S+)$`).FindAllStringSubmatch(work, -1) {
		names = append(names, m[1])
		for _, sibling := range siblings.FindAllStringSubmatch(t.files[m[1]+"/go.mod"], -1) {
			requires[m[1]] = append(requires[m[1]], sibling[1])
		}
	}
	var found []Finding
	for _, name := range names {
		file := name + "/go.mod"
		text := t.files[file]
		if got := goLine.FindStringSubmatch(text); got == nil || got[1] != want[1] {
			found = append(found, Finding{"modules", file, 0, "its go line is not that of go.work: write go " + want[1]})
		}
		if strings.Contains(text, "\ntoolchain ") {
			found = append(found, Finding{"modules", file, 0, "remove the toolchain line: the go line decides"})
		}
		for _, sibling := range reached(requires, name) {
			line := "replace " + modulePath + sibling + " => " + path.Join("..", sibling)
			if !strings.Contains(text, line+"\n") {
				found = append(found, Finding{
					"modules", file, 0,
					"a module names every sibling it reaches, since replace counts in the main module alone: add " + line,
				})
			}
		}
	}
	return found
}

// reached lists the siblings that a module requires, also through others, each once.
func reached(requires map[string][]string, from string) []string {
	var all []string
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range requires[queue[0]] {
			if !seen[next] {
				seen[next] = true
				all, queue = append(all, next), append(queue, next)
			}
		}
	}
	return all
}
