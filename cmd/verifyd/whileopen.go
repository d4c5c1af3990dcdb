package main

import (
	"context"

	"verifyd/natsconf"
)

// whileOpen runs a service while the store is in service, and again when it is so again.
type whileOpen struct {
	watchman *natsconf.Watchman
	service  service
}

// Serve runs until ctx ends.
func (w whileOpen) Serve(ctx context.Context) error {
	for {
		inner, cancel, err := w.watchman.While(ctx)
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
