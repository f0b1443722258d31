package tidy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// prose is the text of a Markdown file with the lines of its code blocks emptied, so that line numbers stay.
func prose(text string) []string {
	all := strings.Split(text, "\n")
	code := false
	for i, line := range all {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			code = !code
		}
		if code || fence {
			all[i] = ""
		}
	}
	return all
}

// markdown are the Markdown files in order.
func (t *Tree) markdown() []string {
	return slices.DeleteFunc(t.names(), func(name string) bool { return path.Ext(name) != ".md" })
}

// checkLinks follows every relative link of every Markdown file, and its anchor.
func checkLinks(t *Tree) []Finding {
	link := regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`)
	reference := regexp.MustCompile(`^\[[^\]]+\]:\s+(\S+)`)
	span := regexp.MustCompile("`[^`]*`")
	var found []Finding
	for _, name := range t.markdown() {
		for i, line := range prose(t.files[name]) {
			line = span.ReplaceAllString(line, "")
			targets := append(link.FindAllStringSubmatch(line, -1), reference.FindAllStringSubmatch(line, -1)...)
			for _, target := range targets {
				if problem := t.follow(name, target[1]); problem != "" {
					found = append(found, Finding{"links", name, i + 1, problem})
				}
			}
		}
	}
	return found
}

// follow says what is wrong with a link, "" when nothing is or it leads elsewhere.
func (t *Tree) follow(from, target string) string {
	if regexp.MustCompile(`^[a-z]+:`).MatchString(target) {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	if strings.HasPrefix(to, "..") {
		return fmt.Sprintf("the link %s leads out of the repository: say it in words", target)
	}
	if !t.exists(to) {
		return fmt.Sprintf("the link %s leads to %s, which is not there: correct it", target, to)
	}
	if anchor != "" && path.Ext(to) == ".md" && !slices.Contains(anchors(t.files[to]), anchor) {
		return fmt.Sprintf("%s has no heading for #%s: correct the link", to, anchor)
	}
	return ""
}

// exists reports whether a file or a directory of that name is in the tree.
func (t *Tree) exists(name string) bool {
	if _, ok := t.files[name]; ok || name == "." {
		return true
	}
	for file := range t.files {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

// anchors are the names that a page gives to its headings: lower case, without punctuation, spaces as hyphens, and a
// number at the second of the same name.
func anchors(text string) []string {
	heading := regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	drop := regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
	markup := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	var all []string
	seen := map[string]int{}
	for _, line := range prose(text) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		title := markup.ReplaceAllString(m[1], "$1")
		name := strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		if n := seen[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		seen[name]++
	}
	return all
}

// checkCommands looks up every `make <target>` and `go run ./<directory>` that a document names.
func checkCommands(t *Tree) []Finding {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][\w-]*):`).FindAllStringSubmatch(t.files["Makefile"], -1) {
		targets[m[1]] = true
	}
	// A command stands in a code block at the beginning of a line or after a prompt, or alone in back quotes.
	made := regexp.MustCompile("(?:^\\s*(?:\\$ )?|`)make ([a-z][\\w-]*)")
	run := regexp.MustCompile(`go (?:run|build|test) (?:-\S+ )*\./([\w./-]+)`)
	var found []Finding
	for _, name := range t.markdown() {
		for i, line := range strings.Split(t.files[name], "\n") {
			for _, m := range made.FindAllStringSubmatch(line, -1) {
				if !targets[m[1]] {
					found = append(found, Finding{"commands", name, i + 1, fmt.Sprintf(
						"the Makefile has no target %s: correct the command or add it", m[1])})
				}
			}
			for _, m := range run.FindAllStringSubmatch(line, -1) {
				if dir := strings.TrimSuffix(strings.TrimSuffix(m[1], "..."), "/"); !t.exists(path.Clean(dir)) {
					found = append(found, Finding{"commands", name, i + 1, "there is no ./" + dir + ": correct the command"})
				}
			}
		}
	}
	return found
}

// changeGroups are the groups of the changelog, in their order.
func changeGroups() []string { return []string{"Safety", "Behaviour", "Operations", "Internals"} }

// checkChangelog holds CHANGELOG.md to its form: releases, and in each the groups in their order.
func checkChangelog(t *Tree) []Finding {
	const name = "CHANGELOG.md"
	text, ok := t.files[name]
	if !ok {
		return []Finding{{"changelog", name, 0, "there is none: write one"}}
	}
	release := regexp.MustCompile(`^## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2})$`)
	var found []Finding
	last, releases := -1, 0
	for i, line := range prose(text) {
		switch {
		case strings.HasPrefix(line, "## "):
			last, releases = -1, releases+1
			if !release.MatchString(line) {
				found = append(found, Finding{"changelog", name, i + 1, `write "## Unreleased" or "## 1.2.3 - 2026-01-31"`})
			}
		case strings.HasPrefix(line, "### "):
			group := slices.Index(changeGroups(), strings.TrimPrefix(line, "### "))
			if group <= last {
				found = append(found, Finding{
					"changelog", name, i + 1,
					"the groups are " + strings.Join(changeGroups(), ", ") + ", each once and in this order",
				})
			}
			last = max(last, group)
		}
	}
	if releases == 0 {
		found = append(found, Finding{"changelog", name, 0, `begin with "## Unreleased"`})
	}
	return found
}
