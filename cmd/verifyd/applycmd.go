package main

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
)

type applyCmd struct {
	storeSettings `embed:""`
}

// Run makes the topology, as each start of the service does whose credential may. A repeat changes nothing.
func (a applyCmd) Run(ctx context.Context, c console) error {
	var f faults
	cfg := a.config(&f)
	if cfg.natsURL == "" {
		f.add("nats-url", "not set, and an embedded store is made by the service itself", "set it to the external servers")
	}
	if err := f.err(); err != nil {
		return usageError{err}
	}
	st, err := openStore(ctx, cfg, zerolog.New(c.err).Level(zerolog.WarnLevel), toServe)
	if err != nil {
		return err
	}
	defer st.close()
	_, err = fmt.Fprintln(c.err, "The servers hold what verifyd needs.")
	return err
}
