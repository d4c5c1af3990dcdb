package receivertest

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/edge/account/secrets"
	"verifyd/sessions"
	"verifyd/sessions/base32"
	"verifyd/sessions/facts"
	"verifyd/sessions/urlpolicy"
)

// private lists the addresses that are also allowed if Options.AllowPrivate is set: this machine and private
// networks. Link-local ones are not among them, since clouds keep credentials there.
var private = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// Options configure which receiver is tried, and how.
type Options struct {
	URL          string         // of the receiver: https, or http on this machine if AllowPrivate is set
	Secret       string         // its signing secret, "whsec_…"
	AllowPrivate bool           // reach addresses of this machine and of private networks
	Roots        *x509.CertPool // authorities of its certificate; nil: the system's
	Timeout      time.Duration  // of one attempt
	UserAgent    string
	User, Guild  string        // platform_user_id and guild_id of what is sent
	SlowPause    time.Duration // between the pieces of the slow request; default 75 ms
}

// Bench is a receiver that is ready to be tried.
type Bench struct {
	o      Options
	client *callback.Client
	url    urlpolicy.URL
	shown  string // the host, as it was given
	front  *front // nil: none is needed
	checks []check
}

// NewSecret returns a new signing secret (32 random bytes).
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(b)
}

// New prepares the checks. Its errors are faults of the options, with what would be valid. Close ends what it
// started.
func New(o Options) (*Bench, error) {
	if o.SlowPause <= 0 {
		o.SlowPause = defaultSlowPause
	}
	b := &Bench{o: o, checks: checks(NewSecret(), o.SlowPause)}
	raw, roots := o.URL, o.Roots
	if plain, err := url.Parse(o.URL); err == nil && plain.Scheme == "http" && plain.Host != "" {
		if !o.AllowPrivate || !isLoopback(plain.Hostname()) {
			return nil, errors.New("callbacks go over https; http is tried only on this machine, as " +
				"http://localhost:3000/…, with --allow-private")
		}
		if b.front, err = newFront(plain); err != nil {
			return nil, err
		}
		raw, roots, b.shown = b.front.url(plain), b.front.roots, plain.Host
	}
	var allowed []netip.Prefix
	if o.AllowPrivate {
		allowed = private
	}
	policy := urlpolicy.NewPolicy(allowed, nil)
	var err error
	if b.url, err = policy.Parse(raw); err != nil {
		b.Close()
		return nil, urlError(err, o.AllowPrivate)
	}
	if b.shown == "" {
		b.shown = b.url.HostPort()
	}
	b.client = callback.New(callback.Config{
		RootCAs: roots, Policy: policy, Timeout: o.Timeout, UserAgent: o.UserAgent,
	})
	if err = secrets.CheckSigning(o.Secret); err == nil {
		_, err = b.client.PrepareProbe(b.valid())
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("the signing secret: %w; copy it from the dashboard, or from verifyd account "+
			"secret", err)
	}
	return b, nil
}

// Close ends what New started. A repeat is harmless.
func (b *Bench) Close() {
	if b.front != nil {
		b.front.close()
	}
}

func urlError(err error, private bool) error {
	fault, ok := errors.AsType[*urlpolicy.Fault](err)
	if !ok {
		return err
	}
	switch fault.Code {
	case urlpolicy.CodeHost, urlpolicy.CodeAddress:
		if private {
			return fmt.Errorf("the URL: %s; with --allow-private, an address such as "+
				"https://127.0.0.1:3000 is tried, and http://localhost:3000", fault.Detail)
		}
		return fmt.Errorf("the URL: %s; --allow-private tries receivers on this machine and in private "+
			"networks", fault.Detail)
	}
	return fmt.Errorf("the URL: %s", fault.Detail)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// valid returns a valid callback, with a unique webhook-id.
func (b *Bench) valid() callback.Probe {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	return callback.Probe{
		Callback: callback.Callback{
			URL: b.url, Session: sessions.ID(base32.Lower.EncodeToString(id)),
			PlatformUserID: b.o.User, GuildID: b.o.Guild, Verified: true, Secrets: []string{b.o.Secret},
			At:   time.Now(),
			Test: true,
		},
		Headers: map[string]string{},
	}
}

// Accepts reports whether the receiver accepts a valid callback now, and its answer. It is for waiting until
// the receiver has the secret.
func (b *Bench) Accepts(ctx context.Context) (accepts bool, result string) {
	answer, err := b.send(ctx, b.valid())
	if err != nil {
		return false, err.Error()
	}
	return answer.Verdict == facts.VerdictDelivered, words(answer)
}

// Run makes all checks in order. A receiver that was not reached is not judged, and one that does not accept
// a valid callback is tested no further: its refusals would mean nothing. The error is ctx's.
func (b *Bench) Run(ctx context.Context) (Report, error) {
	r := Report{Receiver: b.shown}
	for _, c := range b.checks {
		f := b.ask(ctx, c)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if f.unreached {
			r.Stopped = "The receiver was not reached: " + f.Got + ". " + f.Why
			break
		}
		r.Checks = append(r.Checks, f)
		if len(r.Checks) == 1 && f.Outcome == Fail {
			r.Stopped = "A valid callback was not accepted, so the results of the other checks would " +
				"mean nothing yet. Fix that first."
			break
		}
	}
	r.weigh()
	return r, nil
}

func (b *Bench) ask(ctx context.Context, c check) Finding {
	f := Finding{Check: c.name}
	var answers []callback.Answer
	var got []string
	for _, p := range c.make(b.valid()) {
		p.Headers = maps.Clone(p.Headers)
		answer, err := b.send(ctx, p)
		if err != nil {
			f.Got, f.unreached = err.Error(), true
			f.Why = "Nothing was sent, and nothing more was tried. A real callback is retried for " +
				"15 minutes by default."
			return f
		}
		answers = append(answers, answer)
		got = append(got, words(answer))
		f.Took += answer.Timing.Total
	}
	f.Got = strings.Join(got, ", then ")
	f.Outcome, f.Why = c.judge(answers)
	return f
}

// send makes one attempt on a connection of its own. The error says why nothing was sent.
func (b *Bench) send(ctx context.Context, p callback.Probe) (callback.Answer, error) {
	if b.front != nil {
		if err := b.front.check(ctx); err != nil {
			return callback.Answer{}, err
		}
	}
	request, err := b.client.PrepareProbe(p)
	if err != nil {
		return callback.Answer{}, err
	}
	conn, err := b.client.Dial(ctx, p.URL)
	if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
		return callback.Answer{}, errors.New(notSent.Detail)
	}
	if err != nil {
		return callback.Answer{}, err
	}
	defer func() { _ = conn.Close() }()
	answer := conn.Send(ctx, request)
	if answer.Verdict == facts.VerdictReleased {
		return answer, errors.New(answer.Detail)
	}
	return answer, nil
}
