// Command verifyd is the whole product in one binary, and the switchboard of the project: the only place where the rooms meet.
//
//	verifyd serve                     run the service
//	verifyd demo [--auto]             run everything on loopback, with a sample integrator, and show a callback
//	verifyd key create|list|revoke    API keys, on a running service or a stopped one
//	verifyd account secret NAME       an account's callback signing secret
//	verifyd deliveries list|show      callbacks and how they ended, on a running service or a stopped one
//	verifyd deliveries resend         send an ended one again
//	verifyd deliveries redrive        send many ended ones again
//	verifyd hosts list|pause|resume   receiver hosts in trouble, or left alone
//	verifyd operator grant|revoke     who may use the operator's pages of the dashboard
//	verifyd status                    what an operator asks first
//	verifyd explain SESSION           what happened to a session, in plain words
//	verifyd try URL                   judge an integrator's receiver
//	verifyd listen                    bring a test key's callbacks to a program on this machine
//	verifyd prepare DIR               secrets and NATS configuration for several machines
//	verifyd apply                     what external NATS servers hold
//	verifyd log-level                 tell or change how much a running process logs
//	verifyd bench                     measure the service on this machine, beside ceilings
//	verifyd version
//
// The laws of this package:
//
//   - A setting has one name: --callback-timeout, VERIFYD_CALLBACK_TIMEOUT, callback_timeout in the YAML file; the flag wins over
//     the variable, the variable over the file. Every fault is reported at once, with the setting, its value's fault and an
//     example, and nothing is started.
//   - A Program is what main and the end-to-end tests both boot. It starts inside out (store, writers, dispatcher, edge) and
//     stops outside in, so that nobody is asked for what is gone already.
//   - Every actor runs under a supervisor, with its name; what fails is started again, and the job goes on.
package main
