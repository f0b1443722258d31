package main

import (
	"context"
	"io"

	"github.com/cabine-pix/cabine/libs/devstack"
)

// Inbound is durable messages per second.
type Inbound struct {
	// Ours is what the poller stored per second, Bare what a loop read and forgot, Ratio ours by bare.
	Ours  float64 `json:"ours"`
	Bare  float64 `json:"bare"`
	Ratio float64 `json:"ratio"`
}

func inbound(context.Context, config, *devstack.Stack, *Report, io.Writer) error { return nil }
