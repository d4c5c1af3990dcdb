// Package demo shows a whole verification: the service, a simulated identity network, a sample integrator
// that starts sessions and takes callbacks, and a browser that signs in. The end-to-end tests use integrator
// and browser, too.
package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/logging"
	"verifyd/cmd/verifyd/service"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/client"
)

const (
	// demoListen is the demo's address if it is free.
	demoListen  = "127.0.0.1:8080"
	demoAccount = "Harbor Guild"
	// User is the user whom the sample integrator verifies.
	User      = "sailor_42"
	demoOwner = "harbormaster" // on the dev network
	// devNetworkButton signs in on the dev network's page.
	devNetworkButton = "sign-in"
	// autoTimeout bounds the automatic demo, which takes a fraction of it.
	autoTimeout = 2 * time.Minute
)

// Options configure the demo.
type Options struct {
	Auto     bool   // play the browser too, and end after the callback
	Binding  string // the level that sessions require: link, code or account; empty: the account's
	LogLevel string
	Operator Operator
	In       io.Reader // what people type: the codes that pages show; nil: nothing
	Out, Err io.Writer
}

// Operator enrolls the sample integrator.
type Operator struct {
	Actor access.Actor
	// Account returns the account of a name, if an operator may show its secrets.
	Account func(ctx context.Context, s *accountstore.Store, name string) (account.Account, error)
}

// Run shows a whole verification on loopback, with a store that is deleted at the end.
func Run(ctx context.Context, o Options) (err error) {
	j, err := config.LogSettings{LogLevel: o.LogLevel, LogFormat: "auto"}.Logger(o.Err)
	if err != nil {
		return config.Usage(err)
	}
	defer j.Queue.Flush(time.Second)
	dir, err := os.MkdirTemp("", "verifyd-demo-")
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &demo{Options: o, began: time.Now()}
	if err := s.start(ctx, dir, j); err != nil {
		return err
	}
	defer s.stop()
	if o.Auto {
		return s.walk(ctx, "dev")
	}
	if o.In != nil {
		s.readLines(ctx, o.In)
	}
	return s.interactive(ctx, "Ctrl-C ends the demo and removes its store.")
}

// demo is a running demo.
type demo struct {
	Options

	lines      <-chan string // that people type; nil if nobody does
	began      time.Time
	program    *service.Program
	integrator *Integrator
	stops      []func()
}

func (d *demo) stop() {
	for _, stop := range slices.Backward(d.stops) {
		stop()
	}
}

// say prints a step with the time since the start.
func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.Out, "%8.3f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// detail prints lines that belong to the last step.
func (d *demo) detail(lines ...string) {
	for _, l := range lines {
		_, _ = fmt.Fprintf(d.Out, "              %s\n", l)
	}
}

func (d *demo) start(ctx context.Context, dir string, j *logging.Logger) (err error) {
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	ca, err := localca.New()
	if err != nil {
		return err
	}
	caFile := filepath.Join(dir, "receiver-ca.pem")
	if err := os.WriteFile(caFile, ca.PEM(), 0o600); err != nil {
		return fmt.Errorf("write the receiver's authority: %w", err)
	}
	if d.integrator, err = NewIntegrator(ca); err != nil {
		return err
	}
	d.run("sample integrator", d.integrator)
	cfg, err := Config(dir, caFile, j.Log())
	if err != nil {
		return err
	}
	cfg.Logger = j
	d.program = service.New(cfg)
	failed := d.run("service", d.program)
	select {
	case <-d.program.Ready:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	d.say("verifyd is up at %s, with an embedded store and an identity network that is not real",
		d.program.Base)
	d.say("the dashboard is at %s/dashboard: log in as %s to see what the sample integrator does",
		d.program.Base, demoOwner)
	return d.enroll(ctx)
}

// run serves until the demo stops.
func (d *demo) run(name string, s supervise.Service) (failed <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(ctx); err != nil && ctx.Err() == nil {
			end <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	d.stops = append(d.stops, func() { cancel(); <-done })
	return end
}

// Config configures the service through the same settings that operators use, whatever the environment
// says.
func Config(dir, caFile string, log zerolog.Logger) (config.Config, error) {
	listen := demoListen
	if !free(listen) {
		listen = "127.0.0.1:0"
	}
	var c struct{ config.Settings }
	parser, err := kong.New(&c)
	if err == nil {
		_, err = parser.Parse([]string{
			"--data-dir", filepath.Join(dir, "store"), "--listen", listen, "--admin-listen", "",
			"--dev-network", "--test-keys", "--dev-network-dashboard", "--dashboard-allow", "open",
			"--callback-ca-file", caFile, "--callback-allow-cidrs", "127.0.0.0/8",
		})
	}
	if err != nil {
		return config.Config{}, fmt.Errorf("settings of the demo: %w", err)
	}
	return c.Config(log)
}

// enroll does what an operator and an integrator do once.
func (d *demo) enroll(ctx context.Context) error {
	accounts := d.program.Store.Accounts
	a, secret, err := d.account(ctx, accounts)
	if err != nil {
		return err
	}
	owner := account.Member{Network: "dev", Subject: demoOwner, Name: demoOwner, Role: access.RoleOwner}
	if _, err := accounts.AddMember(ctx, d.Operator.Actor, a.ID, owner); err != nil {
		return err
	}
	if err := d.program.Knows(ctx, secret); err != nil {
		return err
	}
	return d.integrator.enroll(d.program.Base, secret, a.Secrets[0].Value)
}

// account creates the sample integrator's account, if it is missing, and a key.
func (d *demo) account(ctx context.Context, accounts *accountstore.Store) (a account.Account, secret string,
	err error) {
	a, err = accounts.CreateAccount(ctx, d.Operator.Actor, demoAccount)
	if errors.Is(err, account.ErrAccountExists) {
		// with a running service it could be somebody else's
		a, err = d.Operator.Account(ctx, accounts, demoAccount)
	}
	if err != nil {
		return a, "", err
	}
	secret, key, err := accounts.CreateKey(ctx, d.Operator.Actor, a.ID, account.KeyOptions{Name: "demo"})
	if err != nil {
		return a, "", err
	}
	d.say("%s has an API key (%s) and a signing secret", a.Name, key.Prefix()+"…"+key.Last4)
	return a, secret, nil
}

// begin starts a session as the sample integrator.
func (d *demo) begin(ctx context.Context) (Started, error) {
	s, err := d.integrator.start(ctx, User, d.Binding, d.integrator.CallbackURL())
	if err != nil {
		return s, err
	}
	answer, err := json.Marshal(s)
	if err != nil {
		return s, fmt.Errorf("show the session: %w", err)
	}
	d.say("the sample integrator called POST /verify/init and got:")
	d.detail(string(answer))
	return s, nil
}

// show prints a callback.
func (d *demo) show(got Received) error {
	d.say("the callback arrived: POST %s", d.integrator.CallbackURL())
	for _, name := range []string{
		"Content-Type", "User-Agent", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
	} {
		d.detail(strings.ToLower(name) + ": " + got.Header.Get(name))
	}
	d.detail("", string(got.Body), "")
	if got.answer != "" {
		return fmt.Errorf("the sample integrator did not accept the callback: %s", got.answer)
	}
	d.say("its signature is valid under the account's signing secret: %s is verified: %v",
		got.result.PlatformUserID, got.result.Verified)
	return nil
}

func (d *demo) interactive(ctx context.Context, ending string) error {
	for ctx.Err() == nil {
		s, err := d.begin(ctx)
		if err != nil {
			return err
		}
		d.detail("", "Open this link and sign in as anybody you like:", "", "    "+s.VerifyURL, "")
		if d.Binding == "code" {
			d.detail("Then type the code that the page shows, and Enter: the user writes it to the bot.", "")
		}
		d.detail(ending, "")
		expired := time.NewTimer(time.Until(s.ExpiresAt))
		got, came := d.awaitCallback(ctx, s, expired.C)
		switch {
		case came:
			if err := d.show(got); err != nil {
				return err
			}
			d.detail("", "Here is the next one:")
		case ctx.Err() == nil:
			d.say("the link has expired: no callback is sent for it. Here is another:")
		}
		expired.Stop()
	}
	return nil
}

// awaitCallback returns the callback of a session, and confirms it with what people type; none if the session
// expires or ctx ends before.
func (d *demo) awaitCallback(ctx context.Context, s Started, expired <-chan time.Time) (got Received,
	came bool) {
	typed := d.lines
	if d.Binding != "code" {
		typed = nil
	}
	for {
		select {
		case got = <-d.integrator.received:
			return got, true
		case code, open := <-typed:
			if !open {
				typed = nil
			} else if code != "" {
				d.confirm(ctx, s, code)
			}
		case <-expired:
			return got, false
		case <-ctx.Done():
			return got, false
		}
	}
}

// confirm sends a code to the service, as a bot does that receives a message, and prints the result.
func (d *demo) confirm(ctx context.Context, s Started, code string) {
	err := d.integrator.confirm(ctx, s, User, code)
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		d.say("the sample integrator called POST /sessions/{session}/confirm: the code is right")
	case ok:
		d.say("the sample integrator called POST /sessions/{session}/confirm and got %d: %s", refused.Status,
			refused.Detail)
	default:
		d.say("the sample integrator called POST /sessions/{session}/confirm: %v", err)
	}
}

// readLines reads what people type while the demo runs.
func (d *demo) readLines(ctx context.Context, from io.Reader) {
	lines := make(chan string)
	d.lines = lines
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(from); scan.Scan(); {
			select {
			case lines <- strings.TrimSpace(scan.Text()):
			case <-ctx.Done():
				return
			}
		}
	}()
}

// walk plays the browser: it goes through the same pages, forms and redirects as a person's browser.
func (d *demo) walk(ctx context.Context, network string) error {
	ctx, cancel := context.WithTimeout(ctx, autoTimeout)
	defer cancel()
	s, err := d.begin(ctx)
	if err != nil {
		return err
	}
	b := NewBrowser()
	b.Visited = func(method string, u *url.URL, status int) {
		d.say("browser: %s %s://%s%s → %d", method, u.Scheme, u.Host, u.Path, status)
	}
	p, err := b.Open(ctx, s.VerifyURL)
	if err != nil {
		return err
	}
	if p, err = b.pressUntil(ctx, p, network, devNetworkButton); err != nil {
		return fmt.Errorf("sign-in page: %w", err)
	}
	if p, err = b.Press(ctx, p, devNetworkButton); err != nil {
		return fmt.Errorf("dev network: %w", err)
	}
	d.say("the user reads: %s", p.Title())
	if code := p.Code(); code != "" {
		d.say("the user writes the code that the page shows, %s, to the sample integrator", code)
		d.confirm(ctx, s, code)
	}
	select {
	case got := <-d.integrator.received:
		return d.show(got)
	case <-ctx.Done():
		return errors.New("no callback arrived in time; run again with --log-level info to see why")
	}
}

// free reports whether an address is free to listen on.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
