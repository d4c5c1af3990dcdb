// Package soak runs a whole site for a long time, under faults, and checks whether anything is lost, repeated
// or grows.
//
// The site is three NATS servers, two edges behind a front and two dispatchers, each a process, with users,
// an identity network and receivers in this process. Load is constant. Some users give up; receivers come and
// go; processes are killed, the leaders change, and the disk of one server fills up. Retention is so short
// that most of what is stored ages out during the run.
//
// One server, one edge and one dispatcher are not killed: they are checked for growth of memory, descriptors
// or goroutines. The folders of all servers are checked for growth of the disk.
package soak
