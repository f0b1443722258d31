package plugin

import (
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/cabine-pix/cabine/libs/transport"
)

// Protocol versions, newest last. A host offers all that it can speak, a plugin serves
// the newest that both know, so that either side can be deployed first.
//
//	1  Capabilities, Ready, Pull, Send, CloseStream, Disconnect.
//
// A new number is needed when the meaning of a field or of an outcome changes; a new
// optional field is not one. A host serves its own number and the one before it.
const version1 = 1

// serviceName is what a plugin set calls the transport.
const serviceName = "transport"

// envHostPID tells the process who its parent is, so that a host that died before the
// first look is noticed too.
const envHostPID = "CABINE_TRANSPORT_HOST_PID"

// handshake is not security: it makes a plugin that is started by hand say what it is.
func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		MagicCookieKey:   "CABINE_TRANSPORT_PLUGIN",
		MagicCookieValue: "7d1f0b1e5f0c4e0f9c56b7a2b1f4c8d3",
	}
}

// clientSets are the protocols that a host speaks.
func clientSets() map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{version1: {serviceName: glue{}}}
}

// serverSets are the protocols that a plugin serves.
func serverSets(impl transport.Transport) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{version1: {serviceName: glue{impl: impl}}}
}
