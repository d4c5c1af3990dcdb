package service

import (
	"context"

	"verifyd/cmd/verifyd/supervise"
	"verifyd/natsconf/storestate"
)

// whileOpen runs a service while the store is in service, and starts it again when the store is back in
// service.
type whileOpen struct {
	stateMonitor *storestate.Monitor
	service      supervise.Service
}

// Serve runs until ctx ends.
func (w whileOpen) Serve(ctx context.Context) error {
	for {
		inner, cancel, err := w.stateMonitor.While(ctx)
		if err != nil {
			return err
		}
		err = w.service.Serve(inner)
		left := inner.Err() != nil
		cancel()
		if ctx.Err() != nil || !left {
			return err
		}
	}
}
