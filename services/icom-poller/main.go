// Command icom-poller reads the streams of BACEN's ICOM under permits that all replicas
// share, stores what arrives and hands it to the bus. See package inbound for its rules.
package main

import "github.com/cabine-pix/cabine/services/internal/core"

// version is set by the build; empty: what the build information says.
var version string

func main() { core.Main("icom-poller", version, Defaults(), wire) }
