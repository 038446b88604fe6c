// SPDX-License-Identifier: MIT

package leaderotel

import "go.opentelemetry.io/otel/attribute"

// Keys of the attributes of metrics and spans.
const (
	// KeyName is the name that is led, or [Other].
	KeyName = attribute.Key("leader.name")
	// KeyNamespace is the namespace of the names: leader.Options.Namespace, or the one that the first connection has
	// found.
	KeyNamespace = attribute.Key("leader.namespace")
	// KeyEvent is a leader.EventKind, with "_" for spaces.
	KeyEvent = attribute.Key("leader.event")
	// KeyReason is a leader.Reason.
	KeyReason = attribute.Key("leader.reason")
	// KeyState is a leader.State.
	KeyState = attribute.Key("leader.state")
	// KeyNode is leader.Options.Node. Only spans have it: its default differs with each start of a process, and would
	// begin new series.
	KeyNode = attribute.Key("leader.node")
	// KeyTerm is the term of a leadership. Only spans have it.
	KeyTerm = attribute.Key("leader.term")
)

// Other is the KeyName of all names beyond [Options.MaxNames].
const Other = "_OTHER"
