// Package core is what every service shares: its configuration, its means (log, metrics,
// Redis, Postgres, NATS, leases, leadership, the transport's process) as fx modules, and the
// one list by which it stops. Below it no package knows fx or koanf.
//
// A service is a config struct that embeds Base, a Wire function that returns an
// fx.Option, and a main of a few lines:
//
//	func main() { core.Main("icom-poller", version, Defaults(), Wire) }
//
// # Configuration
//
// Defaults, then one YAML file, then the environment. Every key has an environment
// variable, CABINE_ and the key in capitals with '_' for '.'; some have an older name as
// well (REDIS_HOST), written in the field's env tag. Every secret may be read from a file
// instead: the variable's name, or the key, with _FILE or _file. A key that no field has is
// an error; so are two sources of the same rank that disagree.
//
// # Starting and stopping
//
// Modules do not append fx hooks. They hand a Part to the Runner, which has the only
// hook: on start it starts the parts from the last stage to the first, on stop it runs the
// drain. The stages (see Stage) are the order of stopping, written down once. A part that
// ends although nobody stopped it ends the process with exit code 1, through the drain.
//
// The first SIGTERM or SIGINT drains, the second aborts. Exit codes: 0 clean, 1 failure,
// 2 wrong use or configuration.
package core
