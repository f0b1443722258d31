// Package transporttest is the conformance suite that every transport passes before a
// host may use it: in process behind the real protocol, and as the plugin process that
// will be shipped. What a case demands of a transport that cannot do it (Capabilities)
// is left out.
//
// A transport's test calls Run from a package whose TestMain is Main: the test binary
// also plays the host that is killed.
package transporttest
