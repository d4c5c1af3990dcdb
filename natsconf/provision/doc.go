// Package provision makes sure that JetStream holds the topology, and reports how it stands: differences,
// leaders, copies, clocks.
package provision
