// Command migrate is the deploy step of Cabine: it brings the database to the schema of
// this release and creates what services only look up, the streams and consumers of
// JetStream. It runs before the services, may run twice at once, and may be repeated.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, process{args: os.Args[1:], getenv: os.Getenv, in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
