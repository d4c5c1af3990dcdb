// Package provision makes sure that JetStream holds the topology, and reports its state: differences,
// leaders, replicas, clocks.
package provision
