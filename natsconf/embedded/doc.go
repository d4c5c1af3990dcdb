// Package embedded runs the NATS server of this process and owns its data directory. Before a start it checks
// the store's files against what they must hold (package storefile reads them). A damaged store is not
// served, and another package decides how to go on. After the first write that fails, the store is no longer
// used.
package embedded
