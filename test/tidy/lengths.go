package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
)

// The limits, in lines. A longer function has two thoughts; a longer file has two nouns.
const (
	maxFunction = 70
	maxFile     = 500
	maxMain     = 20
	maxWire     = 60
)

// checkLengths holds hand-written code outside tests to the limits.
func checkLengths(t *Tree) []Finding {
	var found []Finding
	for _, f := range t.goes {
		if f.test || f.generated {
			continue
		}
		if n := lines(f.text); n > maxFile {
			found = append(found, Finding{"file length", f.path, 0, fmt.Sprintf(
				"the file has %d lines, %d are allowed: move one noun into a file of its own", n, maxFile)})
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := t.line(fn.End()) - t.line(fn.Pos()) + 1; n > maxFunction {
				found = append(found, Finding{"function length", f.path, t.line(fn.Pos()), fmt.Sprintf(
					"%s has %d lines, %d are allowed: name its steps", fn.Name.Name, n, maxFunction)})
			}
		}
		found = append(found, checkEntry(t, f)...)
	}
	return found
}

// checkEntry holds main.go and wire.go short: a main starts one thing, a wire.go is one list.
func checkEntry(t *Tree, f *goFile) []Finding {
	limit := map[string]int{"main.go": maxMain, "wire.go": maxWire}[path.Base(f.path)]
	if f.syntax.Name.Name != "main" {
		return nil
	}
	if n := codeLines(t, f); limit > 0 && n > limit {
		return []Finding{{"entry length", f.path, 0, fmt.Sprintf(
			"%d lines of code, %d are allowed: move what it does into a package", n, limit)}}
	}
	return nil
}

// codeLines counts what is left of a file without comments, blank lines, its package clause and its imports.
func codeLines(t *Tree, f *goFile) int {
	skip := map[int]bool{t.line(f.syntax.Package): true}
	mark := func(n ast.Node) {
		for line := t.line(n.Pos()); line <= t.line(n.End()); line++ {
			skip[line] = true
		}
	}
	for _, group := range f.syntax.Comments {
		mark(group)
	}
	for _, decl := range f.syntax.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok.String() == "import" {
			mark(gen)
		}
	}
	n := 0
	for i, line := range strings.Split(f.text, "\n") {
		if text := strings.TrimSpace(line); text != "" && (!skip[i+1] || codeBeforeComment(text)) {
			n++
		}
	}
	return n
}

// codeBeforeComment tells a line of code with a comment at its end from a line of comment.
func codeBeforeComment(line string) bool {
	for _, prefix := range []string{"//", "/*", "*", "import", "package", ")", `"`, "_ \""} {
		if strings.HasPrefix(line, prefix) {
			return false
		}
	}
	return strings.Contains(line, "//")
}
