package tidy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// Package is what `go list` says about one of ours.
type Package struct {
	ImportPath   string
	Name         string
	Imports      []string // of what ships
	TestImports  []string // of its tests, inside the package
	XTestImports []string // and outside
}

// List asks `go list` for every package of the workspace whose root is dir.
func List(ctx context.Context, dir string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Name,Imports,TestImports,XTestImports", "work")
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tidy: go list: %w: %s", err, said.String())
	}
	var all []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("tidy: read go list: %w", err)
		}
		all = append(all, p)
	}
}

// home says where an external library may be imported.
type home struct {
	library string // a prefix of import paths
	homes   []string
	reason  string
}

// homes: one external library, one home. A library that two packages speak is spoken in two dialects. Programs of tools
// measure and compare, so bench speaks what it measures.
func homes() []home {
	return []home{
		{"github.com/jackc/pgx/", []string{"libs/store"}, "PostgreSQL is spoken in libs/store"},
		{"database/sql", []string{"libs/store"}, "PostgreSQL is spoken in libs/store, through pgx"},
		{"github.com/pressly/goose/", []string{"libs/store"}, "migrations are in libs/store"},
		{
			"github.com/redis/go-redis/",
			[]string{"libs/lease", "libs/stream", "libs/dict", "tools/bench"},
			"Redis is spoken in libs/lease, libs/stream and libs/dict",
		},
		{"github.com/nats-io/nats.go", []string{"libs/bus", "libs/devstack"}, "JetStream is spoken in libs/bus"},
		{"github.com/nats-io/nats-server/", []string{"libs/devstack"}, "servers are started by libs/devstack"},
		{"github.com/hashicorp/go-plugin", []string{"libs/transport/plugin"}, "processes of transports are in libs/transport/plugin"},
		{"google.golang.org/grpc", []string{"libs/transport/plugin"}, "gRPC stays inside libs/transport/plugin"},
		{"github.com/hashicorp/go-hclog", []string{"libs/transport/plugin"}, "hclog becomes slog inside libs/transport/plugin"},
		{"github.com/russellhaering/goxmldsig", []string{"libs/signature"}, "XML is canonicalised in libs/signature"},
		{"github.com/ThalesGroup/crypto11", []string{"libs/signature/pkcs11"}, "tokens are reached in libs/signature/pkcs11"},
		{"github.com/beevik/etree", []string{"libs/signature"}, "XML is canonicalised in libs/signature"},
		{"gocloud.dev", []string{"libs/bucket"}, "buckets are spoken to in libs/bucket"},
		{"github.com/knadh/koanf", []string{"services/internal/core"}, "configuration is read in services/internal/core"},
		{"github.com/KimMachineGun/automemlimit", []string{"services/internal/core"}, "the memory of a service is set where it starts"},
		{"github.com/failsafe-go/failsafe-go", []string{"libs/resilience"}, "retries and breakers are policies of libs/resilience"},
		{"github.com/getkin/kin-openapi", []string{"services/payments/api"}, "a contract is checked where it is served"},
		{"go.uber.org/fx", []string{"services"}, "libs have plain constructors; wiring is in services"},
	}
}

// libraries says which of our own packages each of libs may import, beside the words pix and clock, which all may, and
// its own sub-packages. What is not listed imports nothing else of ours.
func libraries() map[string][]string {
	return map[string][]string{
		"libs/pix":                     {},
		"libs/clock":                   {},
		"libs/slotpool":                {"libs/lease", "libs/transport"},
		"libs/leader":                  {"libs/lease"},
		"libs/icom/icomtest":           {"libs/icom"},
		"libs/icom/spitest":            {"libs/icom", "libs/iso20022", "libs/signature", "libs/statement"},
		"libs/iso20022":                {},
		"libs/order":                   {"libs/iso20022", "libs/store"},
		"libs/transport/plugin":        {"libs/transport"},
		"libs/transport/guard":         {"libs/transport"},
		"libs/transport/transporttest": {"libs/transport", "libs/icom"},
		"libs/corebank/corebanktest":   {"libs/corebank"},
		"libs/devstack/devtest":        {"libs/devstack"},
	}
}

// support are packages for tests, which every test may import.
func support() []string {
	return []string{"libs/devstack", "libs/icom/icomtest", "libs/icom/spitest", "libs/transport/transporttest", "libs/corebank/corebanktest", "libs/signature/signaturetest"}
}

// checkImports holds every package to the layout: words <- means <- a service's rules <- wiring.
func checkImports(packages []Package) []Finding {
	var found []Finding
	for _, p := range packages {
		from := strings.TrimPrefix(p.ImportPath, modulePath)
		for _, imported := range p.Imports {
			if why := forbidden(from, p.Name, imported); why != "" {
				found = append(found, Finding{"imports", from, 0, "imports " + imported + ": " + why})
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			why := forbidden(from, p.Name, imported)
			if why != "" && !slices.Contains(p.Imports, imported) && !forTests(from, imported) {
				found = append(found, Finding{"imports", from, 0, "its tests import " + imported + ": " + why})
			}
		}
	}
	return found
}

// forTests reports whether an import is forbidden to what ships and allowed to its tests: test support, in tests from
// outside the package itself, and the means that another one is tried with.
func forTests(from, imported string) bool {
	ours, ok := strings.CutPrefix(imported, modulePath)
	if !ok {
		return false
	}
	term := within(from, "libs/leader") && ours == "libs/store" // the term of a leader is minted there
	return term || ours == from || slices.ContainsFunc(support(), func(s string) bool { return within(ours, s) })
}

// within reports whether a package is another or lies below it.
func within(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }

// forbidden says why a package may not import another, "" when it may.
func forbidden(from, name, imported string) string {
	for _, h := range homes() {
		library := strings.TrimSuffix(h.library, "/")
		if within(imported, library) && !slices.ContainsFunc(h.homes, func(home string) bool { return within(from, home) }) {
			return h.reason
		}
	}
	if within(imported, "go.uber.org/fx") && name != "main" && !within(from, "services/internal/core") {
		return "a rule of a service has a plain constructor: fx stays in wire.go and main.go, and in services/internal/core"
	}
	ours, ok := strings.CutPrefix(imported, modulePath)
	if !ok {
		return forbiddenToWords(from, imported)
	}
	switch module, _, _ := strings.Cut(from, "/"); module {
	case "libs":
		return forbiddenToLibs(from, ours)
	case "plugins":
		return forbiddenToPlugins(ours)
	case "services":
		return forbiddenToServices(from, ours)
	case "test":
		if !within(ours, "libs") && !within(ours, "test") {
			return "tests of the whole see services and plugins as programs"
		}
	case "tools":
		if !within(ours, "libs") && !within(ours, "tools") {
			return "tools see services and plugins as programs"
		}
	}
	return ""
}

// forbiddenToWords keeps the vocabulary on the standard library.
func forbiddenToWords(from, imported string) string {
	words := within(from, "libs/pix") || within(from, "libs/clock")
	if words && strings.Contains(strings.Split(imported, "/")[0], ".") && !within(imported, "golang.org/x/sys") &&
		!within(imported, "github.com/stretchr/testify") && !within(imported, "go.uber.org/goleak") {
		return "the words of the house know the standard library alone"
	}
	return ""
}

func forbiddenToLibs(from, ours string) string {
	if !within(ours, "libs") {
		return "imports go down only: words <- means <- rules <- wiring"
	}
	if ours == "libs/pix" || ours == "libs/clock" || within(ours, from) && from != "libs" {
		return ""
	}
	// The closest entry above decides: libs/transport/plugin before libs/transport.
	for parent := from; parent != "." && parent != "libs"; parent = path.Dir(parent) {
		allowed, listed := libraries()[parent]
		if slices.ContainsFunc(allowed, func(a string) bool { return within(ours, a) }) || within(ours, parent) {
			return ""
		}
		if listed {
			break
		}
	}
	return "means do not know each other: declare the small interface that is needed where it is needed"
}

func forbiddenToPlugins(ours string) string {
	for _, allowed := range []string{
		"plugins", "libs/pix", "libs/clock", "libs/icom", "libs/iso20022", "libs/signature", "libs/transport",
	} {
		if within(ours, allowed) && !slices.ContainsFunc(support(), func(s string) bool { return within(ours, s) }) {
			return ""
		}
	}
	return "a plugin imports pix, clock, icom, iso20022, signature and transport alone: that proves the contract is enough"
}

func forbiddenToServices(from, ours string) string {
	switch {
	case slices.ContainsFunc(support(), func(s string) bool { return within(ours, s) }):
		return "a service ships no test support"
	case within(ours, "libs"), within(ours, "services/internal"):
		return ""
	case within(ours, "services"):
		service := strings.Join(strings.Split(from, "/")[:2], "/")
		if within(ours, service) {
			return ""
		}
		return "services do not import each other: they meet in tables, streams and contracts"
	}
	return "imports go down only: words <- means <- rules <- wiring"
}
