package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Finding is one place that breaks a rule.
type Finding struct {
	// Rule is the name of the rule, as exceptions.go uses it.
	Rule string
	// Path is the file or the package, with slashes, from the root.
	Path string
	// Line is where in the file, 0 for the file as a whole.
	Line int
	// Text says what is wrong and what to do.
	Text string
}

// String is the finding as compilers write it, so that editors can jump to it.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s (%s)", f.Path, f.Text, f.Rule)
	}
	return fmt.Sprintf("%s:%d: %s (%s)", f.Path, f.Line, f.Text, f.Rule)
}

// Tree is the text files of the repository.
type Tree struct {
	files map[string]string // content by path from the root
	fset  *token.FileSet
	goes  []*goFile // parsed, ordered by path
}

// goFile is one Go file.
type goFile struct {
	path      string
	text      string
	syntax    *ast.File
	test      bool // compiled for tests alone
	generated bool
}

// leftOut are directories that are not ours to judge: the history, and what is built or downloaded.
func leftOut(dir string) bool {
	return slices.Contains([]string{".git", ".cache", "bin", "node_modules", ".terraform"}, path.Base(dir))
}

// Load reads the tree below a root. Files that are not text are left out.
func Load(root fs.FS) (*Tree, error) {
	t := &Tree{files: map[string]string{}, fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && leftOut(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if utf8.Valid(content) {
			t.files[name] = string(content)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tidy: read tree: %w", err)
	}
	return t, t.parse()
}

// parse reads the Go files; what does not compile is a finding of the compiler, not ours, and an error here.
func (t *Tree) parse() error {
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	for _, name := range t.names() {
		if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		syntax, err := parser.ParseFile(t.fset, name, t.files[name], parser.ParseComments)
		if err != nil {
			return fmt.Errorf("tidy: parse: %w", err)
		}
		t.goes = append(t.goes, &goFile{
			path: name, text: t.files[name], syntax: syntax,
			test: strings.HasSuffix(name, "_test.go"), generated: generated.MatchString(t.files[name]),
		})
	}
	return nil
}

// names are the paths of all files in order.
func (t *Tree) names() []string {
	names := make([]string, 0, len(t.files))
	for name := range t.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (t *Tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }

// lines is how many lines a text has.
func lines(text string) int { return strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1 }
