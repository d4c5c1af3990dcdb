package main

import (
	"context"

	"verifyd/cmd/verifyd/demo"
)

type demoCmd struct {
	Auto     bool   `help:"Play the browser too, and exit after the callback: 0 when its signature verified."`
	LogLevel string `default:"error" help:"trace, debug, info, warn or error."`
}

// Run shows the whole path on loopback.
func (d demoCmd) Run(ctx context.Context, c console) error {
	return demo.Run(ctx, demo.Options{
		Auto: d.Auto, LogLevel: d.LogLevel, Operator: demoOperator(), Out: c.out, Err: c.err,
	})
}

type besideCmd struct {
	demo.Beside `embed:""`
}

// Run plays beside a running service.
func (b besideCmd) Run(ctx context.Context, c console) error {
	return b.Play(ctx, demoOperator(), c.out, c.err)
}

// demoOperator enrolls the demo's integrator as this command's other accounts are.
func demoOperator() demo.Operator { return demo.Operator{Actor: operator(), Account: ownAccount} }
