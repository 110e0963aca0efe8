package resource

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// listener judges a Listener, whose name is judged already, and makes the value.
// The value is of use only where nothing was refused.
func (v *verdict) listener(m *listenerv3.Listener) *Listener {
	return &Listener{Name: m.GetName()}
}
