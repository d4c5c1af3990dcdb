package integrator

import (
	"context"
	"os"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/demo"
)

// Demo runs everything on loopback, with a sample integrator, and shows a callback.
type Demo struct {
	Auto     bool   `help:"Play the browser too, and exit after the callback, with 0 if its signature is valid."`
	Binding  string `enum:"link,code,account" default:"link" help:"What sessions ask to be proven: link, code or account."`
	LogLevel string `default:"error" help:"trace, debug, info, warn or error."`
}

// Run shows a whole verification on loopback.
func (d Demo) Run(ctx context.Context, c command.Console) error {
	return demo.Run(ctx, demo.Options{
		Auto: d.Auto, Binding: d.Binding, LogLevel: d.LogLevel, Operator: demoOperator(), In: os.Stdin,
		Out: c.Out, Err: c.Err,
	})
}

// Beside plays integrator, identity network and user next to a running service, and shows a callback.
type Beside struct {
	demo.Beside `embed:""`
}

// Run plays next to a running service.
func (b Beside) Run(ctx context.Context, c command.Console) error {
	return b.Play(ctx, demoOperator(), c.Out, c.Err)
}

// demoOperator enrolls the demo's integrator like the accounts of other commands.
func demoOperator() demo.Operator {
	return demo.Operator{Actor: command.Operator(), Account: command.OwnAccount}
}
