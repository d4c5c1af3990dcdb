// Command verifyd is the whole product in one binary, and the entry point of the project: the command line.
// Packages command and service below it import the rest.
//
//	verifyd serve         run the service
//	verifyd demo          run everything on loopback, with a sample integrator, and show a callback
//	verifyd demo-beside   play integrator, identity network and user next to a running service
//	verifyd key           API keys
//	verifyd account       integrators: keys, quota, name, members, secrets, in service or not
//	verifyd member        members of accounts, and invites
//	verifyd operator      who may use the operator's pages, and operator tokens; the log of operations
//	verifyd hosts         receiver hosts in trouble, or left alone
//	verifyd deliveries    callbacks and how they ended; send them again
//	verifyd sessions      an account's sessions, for other programs
//	verifyd explain       what happened to a session, in plain words
//	verifyd try           judge an integrator's receiver
//	verifyd listen        bring a test key's callbacks to a program on this machine
//	verifyd status        what an operator asks first
//	verifyd check         what is wrong with the settings, and with the store
//	verifyd move          bring the store to a NATS cluster while the service runs
//	verifyd backup        write everything in the store into one file
//	verifyd restore       fill a new store from a backup or a copy
//	verifyd recover       make a damaged store fit to be served again
//	verifyd erase         erase what is stored of one user
//	verifyd secret        the master key
//	verifyd log-level     tell or change how much a running process logs
//	verifyd prepare       secrets and NATS configuration for several machines
//	verifyd apply         what external NATS servers hold
//	verifyd healthcheck   whether a process on this machine is ready
//	verifyd version       which build this is
//	verifyd completion    the completions of a shell
//	verifyd help          what a command is for, with an example
//
// This package is the command line: it reads one, runs its command, and reports what went wrong. The commands
// are in command and the packages below it, each with its flags and what it prints:
//
//	command/accounts    key, account, member, operator
//	command/delivery    deliveries, hosts, explain
//	command/export      sessions
//	command/integrator  try, listen, demo, demo-beside
//	command/process     serve, status, check, log-level, healthcheck
//	command/storage     move, backup, restore, recover, erase, secret, prepare, apply
//
// What they do is in the packages next to it:
//
//	config        the settings, checked, and what a service runs with
//	flags         where the values of flags come from: command line, variables, file
//	store         opening a store: embedded, external, with its master key
//	service       the running program: wiring, layers, readiness, alarms, telemetry
//	supervise     actors, and layers of them that start and stop together
//	check         what is wrong with the settings, and with what they refer to
//	move          a store is moved to another one while the service runs
//	demo          a whole verification on loopback, with a sample integrator and a browser
//	receivertest  what a receiver must accept, and what it must refuse
//	table         rows for people, JSON for programs
//	manual        the man page and the completions of shells
//	alarm, logging, trace, version
//
// The laws of the command line:
//
//   - A setting has one name: --callback-timeout, VERIFYD_CALLBACK_TIMEOUT, callback_timeout in the YAML
//     file; the flag wins over the variable, the variable over the file. Every fault is reported at once,
//     with the setting, its value's fault and an example, and nothing is started.
//   - Settings belong to serve, and to other commands if they open the same store, or use a service on
//     another machine in its place. What a command is to do comes only from its command line.
//   - Only serve, restore and account create --new-store make a new store in a folder; on NATS servers, apply
//     does, too, and move makes its target.
//   - serve, the demo and the end-to-end tests all start one service.Program.
package main
