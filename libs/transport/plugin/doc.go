// Package plugin runs a transport in a process of its own: Host on one side, Serve on
// the other, transport.proto between them. A plugin author writes a
// transport.Transport and calls Serve; a service makes a Host, runs it and uses it as
// a transport.Transport. Nothing of gRPC or go-plugin is visible outside.
//
// # Who is authoritative
//
// The host owns permits and processes, the plugin owns connections. A permit's start
// deadline crosses as an absolute instant of CLOCK_BOOTTIME and of the wall clock,
// and the plugin's connection (package guard) keeps it, so that a host that is stopped
// or gone cannot be overtaken by its own request.
//
// # The life of a process
//
// Host.Run launches the executable with an environment of its own and nothing of the
// host's, in its own process group, over mutual TLS on a Unix socket. It is replaced,
// after a growing pause, when it exits, when its connection breaks, and when it has
// been silent for Config.SilenceLimit. A process dies with its host: the kernel kills
// it when the thread that started it ends (so that thread is kept until the process is
// gone), and the process itself leaves when its parent has changed.
//
// # What a death means
//
// The instant at which a process was reaped bounds every write that it ever made. So a
// call that was under way, and every later call of a slot under a grant that was used
// with the dead process, ends with PluginGone and that instant as LastWrite: the slot
// cools down and comes back under another grant. A slot that never used it gets
// NotSent while no process runs. A process that only does not answer has no such
// instant: PluginGone without LastWrite, the start deadline is the bound.
//
// # What the host believes
//
// A process answers for a bank that may be hostile, or is itself confused. The host
// checks counts, sizes, header characters and the plausibility of each Exchange;
// whatever does not fit counts as an unknown outcome that may start until the deadline.
package plugin
