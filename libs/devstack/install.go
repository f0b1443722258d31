package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// installLimit bounds the download and installation of one piece of software.
const installLimit = 8 * time.Minute

// aptEnv is the environment of apt: ours, because a proxy may be set in it, with answers instead of questions.
func aptEnv() []string {
	return append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
}

// install brings software with apt-get, for root. The distribution's own service is not started: the stack starts its
// own server, and a second one would only be in somebody's way.
func (f finder) install(ctx context.Context, sw software) (err error) {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("it cannot be installed: this machine has no apt-get")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installLimit,
		fmt.Errorf("installing %s took longer than %s", sw.name, installLimit))
	defer cancel()
	defer step(f.progress, "installing "+strings.Join(sw.packages, " ")+" with apt-get")()

	allow, err := forbidServices()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allow()) }()

	args := append([]string{
		"-o", "DPkg::Lock::Timeout=120", "install", "--yes", "--no-install-recommends",
	}, sw.packages...)
	if _, err = run(ctx, aptEnv(), apt, args...); err == nil {
		return nil
	}
	// The package lists are missing or old: fetch them, once.
	if _, err = run(ctx, aptEnv(), apt, "update"); err != nil {
		return fmt.Errorf("package lists cannot be fetched: %w", err)
	}
	_, err = run(ctx, aptEnv(), apt, args...)
	return err
}

// forbidServices keeps packages from starting their services until the function returned is called. The file is
// Debian's own means for that (invoke-rc.d asks it); one that is there already stays as it is.
func forbidServices() (allow func() error, err error) {
	const path = "/usr/sbin/policy-rc.d"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("forbid the start of services: %w", err)
	}
	_, errWrite := file.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(errWrite, file.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("forbid the start of services: %w", err), os.Remove(path))
	}
	return func() error { return os.Remove(path) }, nil
}
