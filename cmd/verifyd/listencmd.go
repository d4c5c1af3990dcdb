package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"verifyd/edge/client"
	"verifyd/sessions/relay"
)

const (
	// listenAgain is the pause before the connection is made anew; it doubles up to listenAgainMost while that fails.
	listenAgain     = 500 * time.Millisecond
	listenAgainMost = 10 * time.Second
)

// listeners is where edge and dispatcher meet for callbacks that go to developers' own machines.
func (p *Program) listeners() *relay.Relay { return relay.New(p.store.conn) }

// listenCmd brings the callbacks of a test key's sessions to a program on this machine.
type listenCmd struct {
	Key     string        `env:"VERIFYD_API_KEY" required:"" placeholder:"vfytest_…" help:"The test key ($VERIFYD_API_KEY keeps it out of the shell's history)."`
	Forward string        `env:"-" required:"" placeholder:"URL" help:"Where callbacks go, for example http://localhost:3000/hook."`
	BaseURL string        `env:"VERIFYD_BASE_URL" name:"base-url" default:"http://localhost:8080" help:"{base_url} of the service."`
	Timeout time.Duration `env:"-" default:"8s" help:"How long the program may take; less than the service's VERIFYD_CALLBACK_TIMEOUT."`
}

// Run listens until it is stopped, and connects again by itself. It fails where the service refuses.
func (l listenCmd) Run(ctx context.Context, c console) error {
	to, err := url.Parse(l.Forward)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || to.User != nil {
		return usageError{errors.New("--forward is not an address to forward to; give one such as http://localhost:3000/hook")}
	}
	if l.Timeout < time.Second || l.Timeout > time.Minute {
		return usageError{fmt.Errorf("--timeout: %s is out of range; use 1s to 1m, for example 8s", l.Timeout)}
	}
	cl, err := client.New(l.BaseURL, l.Key, client.WithUserAgent("verifyd-listen/"+versionText()))
	if err != nil {
		return usageError{fmt.Errorf("--base-url or --key: %w", err)}
	}
	f := newForwarder(to, l.Timeout, c.out)
	defer f.close()
	for pause := listenAgain; ; {
		err := cl.Listen(ctx, func() {
			pause = listenAgain
			f.say("Listening. Callbacks of this test key's sessions at %s go to %s; Ctrl-C ends it.", l.BaseURL, to.Redacted())
		}, f.forward)
		if ctx.Err() != nil {
			return nil
		}
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code != "" && refused.Status < 500 && refused.Status != 429 {
			return refused
		}
		f.say("Not listening: %v. Trying again in %s; until then callbacks go to their callback_url.", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, listenAgainMost)
	}
}
