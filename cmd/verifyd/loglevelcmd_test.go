package main

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/logging"
	"verifyd/edge/web"
)

// The level of a running process is shown and changed from the command line; a wrong value is refused with
// the valid ones.
func TestLogLevelOfARunningProcess(t *testing.T) {
	t.Parallel()
	var out buffer
	r := boot(t, func(c *config.Config) {
		c.Logger = logging.New(&out, zerolog.InfoLevel, web.LogMessage)
		c.Log = c.Logger.Log()
	})
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "info\n"},
		{[]string{"warn"}, 0, "warn\n"},
		{[]string{"debug", "--for", "10m"}, 0, "debug until 20"},
		{nil, 0, "debug until 20"},
		{[]string{"loud"}, exitUsage, "use trace, debug, info, warn or error"},
		{[]string{"debug", "--for", "720h"}, exitUsage, "at most 24h0m0s; for example 10m"},
		{[]string{"--for", "1m"}, exitUsage, "verifyd log-level debug --for 10m"},
		{[]string{"error"}, 0, "error\n"},
	} {
		code, said, errOut := verifyd(t,
			append([]string{"log-level", "--admin-listen", r.Admin}, step.args...)...)
		if code != step.code || !strings.HasPrefix(said, step.says) && !strings.Contains(errOut, step.says) {
			t.Errorf("log-level %v: exit %d, %q, %q", step.args, code, said, errOut)
		}
	}
	before := len(out.String())
	r.begin(t)
	if got := out.String()[before:]; got != "" {
		t.Errorf("written at level error: %s", got)
	}
	r.stop()
	if code, _, errOut := verifyd(t, "log-level", "--admin-listen", r.Admin); code != exitFailed ||
		!strings.Contains(errOut, "VERIFYD_ADMIN_LISTEN") {
		t.Errorf("of nobody: exit %d, %q", code, errOut)
	}
}
