// Package provision makes sure that JetStream holds the topology, and reports its state: differences,
// leaders, replicas, clocks. Ensure creates and extends. It refuses, by name, a change that would lose data
// or weaken a fence.
package provision
