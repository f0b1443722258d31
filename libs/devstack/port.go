package devstack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Ports are taken below the kernel's ephemeral range (32768 and up on Linux): there, no outgoing connection can be
// given a server's port while the server restarts.
const (
	portMin = 15000
	portMax = 32000
	// portTries bounds the search for a free port and the starts on one that was taken meanwhile.
	portTries = 20
)

// freePort returns a port of 127.0.0.1 that nobody listens on at this moment. Somebody may take it before the server
// does; whoever starts a server tries again with another port then (see portTaken).
func freePort() (int, error) {
	var last error
	for range portTries {
		port := portMin + rand.IntN(portMax-portMin)                                    //nolint:gosec // a port, not a secret
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // does not block
		if err != nil {
			last = err
			continue
		}
		if err := ln.Close(); err != nil {
			return 0, fmt.Errorf("devstack: give back port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("devstack: no free port after %d tries: %w", portTries, last)
}

// portTaken reads a server's log for the one failure that another port cures. The servers say it in the words of the
// C library and offer nothing better than text.
func portTaken(log string) bool {
	return strings.Contains(tail(log), "ddress already in use")
}
