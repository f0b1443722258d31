// Command outbound-sender takes what is to be said to the SPI from the outbox, signs it and posts it to
// BACEN's ICOM under permits that all replicas share. See package outbound for its rules.
package main

import "github.com/cabine-pix/cabine/services/internal/core"

// version is set by the build; empty: what the build information says.
var version string

func main() { core.Main("outbound-sender", version, Defaults(), wire) }
