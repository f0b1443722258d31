// Package devstack starts the real servers that Cabine stands on: PostgreSQL, Redis and NATS with JetStream.
// The demo runs on it and so does every test that needs a server; no test is skipped because one is missing.
//
// What is always true of a stack:
//
//   - Servers listen on 127.0.0.1 only, on ports that were free, and on the same port again after a restart.
//   - PostgreSQL never runs as root: started by root it runs as the user postgres, or nobody where there is none.
//   - PostgreSQL is durable (fsync and synchronous_commit on): the tests of "durable before ack" mean something.
//   - No server outlives the process that started it, whatever ends that process. Stop ends them in order; a killed
//     process takes them along, because the kernel signals each child when the thread that started it dies.
//   - The directory of a stack goes with Stop; one left behind by a killed process goes when the next stack starts.
//
// Goroutines: one per server process, which starts it, waits for it and ends with it; those of the embedded NATS
// server; two per direction of a connection through a [Proxy]. Stop and Close wait for all of them.
//
// Servers are looked for in PATH and where Debian puts them. What is missing is installed with apt-get when we are
// root, and otherwise unpacked from its Debian package into the user's cache directory and run from there.
package devstack
