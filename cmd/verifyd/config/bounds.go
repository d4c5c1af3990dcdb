package config

import (
	"fmt"
	"net"
	"strings"

	"verifyd/dispatcher"
)

// callbackBounds checks how much is sent at once.
func (s callbackSettings) callbackBounds(c *Config, f *Faults) {
	c.CallbackConnections, c.CallbackAttempts, c.CallbackShare = s.CallbackConnections, s.CallbackAttempts,
		s.CallbackShare
	if n := s.CallbackConnections; n < 1 || n > dispatcher.MaxConnections {
		f.outOfRange("callback-connections", n,
			fmt.Sprintf("use 1 to %d, for example 64", dispatcher.MaxConnections))
	}
	if n := s.CallbackAttempts; n < 1 || n > dispatcher.MaxAttempts {
		f.outOfRange("callback-attempts", n,
			fmt.Sprintf("use 1 to %d, for example 2048", dispatcher.MaxAttempts))
	}
	if n := s.CallbackShare; n < 0 || n > s.CallbackAttempts {
		f.outOfRange("callback-share", n,
			fmt.Sprintf("use 1 to %d, which is VERIFYD_CALLBACK_ATTEMPTS, or leave it out for half of that",
				s.CallbackAttempts))
	}
}

// adminNames returns the names of the operators' address: those that are set, and the one that it listens on.
func (s edgeSettings) adminNames(f *Faults) []string {
	var names []string
	if host, _, err := net.SplitHostPort(s.AdminListen); err == nil {
		names = append(names, host)
	}
	for _, name := range s.AdminNames {
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, "/*?@ ") {
			f.Add("admin-names", fmt.Sprintf("%q is not a host name", name),
				"for example edge-1,metrics.internal; patterns are not supported")
		}
		names = append(names, name)
	}
	return names
}
