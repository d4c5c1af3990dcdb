// Package embedded runs the NATS server of this process and owns its data directory. Before a start it holds
// the store's files against what they must have (package storefile reads them); what is damaged is not
// served, and how to go on is another package's decision. From the first write that fails on, the store is
// not
// used any more.
package embedded
