// Package soak runs a whole site for long, under faults, and looks whether anything is lost, repeated or
// grows.
//
// The site is three NATS servers, two edges behind a front and two dispatchers, each a process, with users,
// an identity network and receivers in this process. Load is constant. Some users give up; receivers come and
// go; processes are killed, the leaders change, and the disk of one server fills up. What is kept is kept so
// shortly that most of it ages out while it runs.
//
// One server, one edge and one dispatcher are spared the kills: whether memory, descriptors or goroutines
// grow is looked for in these, and whether the disk grows in the folders of all servers.
package soak
