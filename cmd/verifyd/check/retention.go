package check

import (
	"context"
	"fmt"
	"strings"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// checkRetention checks how long the store keeps outcomes: a dispatcher's settings may differ from those that
// the stream was created with.
func checkRetention(s *Survey, in provision.Inspection, c config.Config) {
	if !c.Dispatcher || in.KeptFor == 0 {
		return
	}
	kept := in.KeptFor
	if in.MayUpdate {
		kept = c.KeepResults() // as the next start creates it
	}
	if kept < c.CallbackRetryFor+config.RetentionSpare {
		s.err("retention", fmt.Sprintf(
			"set VERIFYD_CALLBACK_RETRY_FOR to at most %s, or VERIFYD_KEEP_RESULTS to at least %s "+
				"where the streams are created",
			max(kept-config.RetentionSpare, 0), c.CallbackRetryFor+config.RetentionSpare),
			"the store keeps outcomes for %s, but callbacks are tried for %s: outcomes could be deleted "+
				"before they are delivered", kept, c.CallbackRetryFor)
	}
}

// checkShortening reports in advance what the next start would refuse.
func checkShortening(ctx context.Context, s *Survey, conn *natsconf.Conn, in provision.Inspection,
	c config.Config) {
	keep := c.KeepResults()
	if !in.MayUpdate || in.KeptFor == 0 || keep >= in.KeptFor {
		return
	}
	if err := store.MayShorten(ctx, conn, topology.StreamCompletions, keep); err != nil {
		what, do, _ := strings.Cut(err.Error(), "; ")
		s.err("retention", do, "%s", what)
	}
}
