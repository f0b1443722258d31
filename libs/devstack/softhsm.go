package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

func softhsmSoftware() software {
	return software{
		name: "SoftHSM", server: "softhsm2-util", reads: parseVersion, programs: []string{"softhsm2-util"}, atLeast: version{2, 5},
		packages: []string{"softhsm2", "libsofthsm2"}, unpacked: "usr/bin",
	}
}

// SoftHSM is a token in software, for keys behind PKCS#11.
type SoftHSM struct {
	// Module is the library that speaks PKCS#11.
	Module string
	// Label and PIN open the token.
	Label, PIN string

	programs programs
	config   string
}

// SoftHSM makes a new token, which lives as long as the stack. The software is found, and installed when it is missing,
// as the servers are.
func (s *Stack) SoftHSM(ctx context.Context) (*SoftHSM, error) {
	found, err := s.finder.find(ctx, softhsmSoftware())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.dir, "softhsm-")
	if err != nil {
		return nil, fmt.Errorf("devstack: make a token: %w", err)
	}
	h := &SoftHSM{
		Module: found.softhsmModule(), Label: "cabine", PIN: "71642", programs: found, config: filepath.Join(dir, "softhsm2.conf"),
	}
	if h.Module == "" {
		return nil, fmt.Errorf("devstack: SoftHSM in %s has no library", found.dir)
	}
	if err := os.WriteFile(h.config, []byte("directories.tokendir = "+dir+"\nobjectstore.backend = file\n"), 0o600); err != nil {
		return nil, fmt.Errorf("devstack: make a token: %w", err)
	}
	return h, h.run(ctx, "--init-token", "--free", "--label", h.Label, "--so-pin", h.PIN)
}

// softhsmModule finds the library beside the program: Debian has it below lib, others in lib or lib64.
func (p programs) softhsmModule() string {
	for _, lib := range []string{"lib/softhsm", "lib/*-linux-*/softhsm", "lib64/softhsm", "lib/pkcs11", "lib64/pkcs11", "lib", "lib64"} {
		found, err := filepath.Glob(filepath.Join(p.dir, "..", lib, "libsofthsm2.so"))
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// Import puts a private key in PKCS#8, from a PEM file, into the token, with its public key.
func (h *SoftHSM) Import(ctx context.Context, pemPath, label string) error {
	return h.run(ctx, "--import", pemPath, "--token", h.Label, "--label", label, "--id", strconv.Itoa(10))
}

// Env is what a process needs in its environment, from its start, to load the library and find the token.
func (h *SoftHSM) Env() []string {
	env := []string{"SOFTHSM2_CONF=" + h.config}
	if h.programs.libs != "" {
		env = append(env, "LD_LIBRARY_PATH="+h.programs.libs)
	}
	return env
}

func (h *SoftHSM) run(ctx context.Context, args ...string) error {
	args = append([]string{"--module", h.Module, "--pin", h.PIN}, args...)
	if _, err := run(ctx, append(h.programs.env(), h.Env()...), h.programs.path("softhsm2-util"), args...); err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}
