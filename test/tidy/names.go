package tidy

import (
	"go/ast"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// checkNames refuses package names that say nothing, and packages that do not say what they are for.
func checkNames(t *Tree) []Finding {
	empty := regexp.MustCompile(`^(utils?|common|shared|helpers?|models?|types?|misc|base|lib|stuff|\w+utils?)$`)
	var found []Finding
	documented, where := map[string]bool{}, map[string]*goFile{}
	for _, f := range t.goes {
		dir, name := path.Dir(f.path), f.syntax.Name.Name
		for _, n := range []string{name, path.Base(dir)} {
			if empty.MatchString(strings.TrimSuffix(n, "_test")) {
				found = append(found, Finding{"package name", f.path, 1, strconv.Quote(n) +
					" says nothing: name the package after what it provides"})
				break
			}
		}
		if f.test || f.generated {
			continue
		}
		where[dir] = f
		documented[dir] = documented[dir] || f.syntax.Doc != nil
	}
	for dir, f := range where {
		if !documented[dir] {
			found = append(found, Finding{
				"package comment", f.path, 1,
				"no file of the package says what it is for: write a comment above its package clause",
			})
		}
	}
	return found
}

// checkCalls refuses calls and functions that have a better replacement here. The linter knows more of them; these
// are the ones that a test run must not pass without.
func checkCalls(t *Tree) []Finding {
	instead := map[string]string{
		"time.Sleep": "nothing waits blindly: use a timer and a context, or in tests poll with require.Eventually",
		"t.Skip":     "a test that is skipped is a test that passes for the wrong reason: start what it needs",
		"t.Skipf":    "a test that is skipped is a test that passes for the wrong reason: start what it needs",
		"t.SkipNow":  "a test that is skipped is a test that passes for the wrong reason: start what it needs",
	}
	var found []Finding
	for _, f := range t.goes {
		if f.generated {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					found = append(found, Finding{
						"calls", f.path, t.line(n.Pos()),
						"nothing happens before main: make it a function that somebody calls",
					})
				}
			case *ast.ImportSpec:
				if n.Path.Value == `"github.com/stretchr/testify/assert"` {
					found = append(found, Finding{"calls", f.path, t.line(n.Pos()), "use require instead of assert"})
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && instead[x.Name+"."+n.Sel.Name] != "" {
					found = append(found, Finding{"calls", f.path, t.line(n.Pos()), instead[x.Name+"."+n.Sel.Name]})
				}
			}
			return true
		})
	}
	return found
}
