package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/secretbox"
)

const (
	// readyWithin bounds the start of the service, recovery of a large store included.
	readyWithin = 2 * time.Minute
	// readyPoll is the resolution of the time to ready.
	readyPoll = time.Millisecond
	// startTries is how often a start is tried: a port that was free may be taken a moment later.
	startTries = 3

	roleEdge       = "edge"
	roleDispatcher = "dispatcher"
	rolesBoth      = "edge,dispatcher"

	benchAccount = "Bench"
	// noLimit is far above what one machine starts in a second, noQuota above what it starts in a month.
	noLimit = 1_000_000
	noQuota = "1000000000000"
)

// site is what a service needs around it: its store, and the outside parties.
type site struct {
	dir    string // of this service alone
	copyTo string // where it keeps a copy of its store; empty: nowhere
	sync   string
	caFile string
	env    []string      // the identity network's settings
	key    secretbox.Key // of the store
	allow  func(base string)
}

// service is verifyd serve as a child, with access to its store.
type service struct {
	*proc.Process

	o      Options
	site   site
	listen string // public address
	admin  string
	ready  time.Duration // from the start of the process until /readyz is 200

	conn    *natsconf.Conn
	account account.Account
	apiKey  string
}

// startService starts the service on the site's store and waits until it is ready.
func (o Options) startService(ctx context.Context, h site, roles string) (*service, error) {
	var last error
	for range startTries {
		s := &service{o: o, site: h}
		var err error
		if s.listen, err = freeAddress(); err != nil {
			return nil, err
		}
		if s.admin, err = freeAddress(); err != nil {
			return nil, err
		}
		if last = s.start(ctx, roles); last == nil {
			return s, nil
		}
		if ctx.Err() != nil || !strings.Contains(last.Error(), "address already in use") {
			break
		}
	}
	return nil, last
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// Measure measures the process, with a profile if one is wanted.
func (s *service) Measure() proc.Usage { return s.profiled(s.Process.Measure()) }

// profiled starts a profile, if one is wanted.
func (s *service) profiled(u proc.Usage) proc.Usage {
	if s.o.Profile != "" {
		u.Profile = proc.StartProfile(s.admin, s.o.Profile, s.site.sync, s.o.Duration)
	}
	return u
}

func (s *service) base() string { return "http://" + s.listen }

// start runs the process, the first time or again after it has ended, on the same addresses.
func (s *service) start(ctx context.Context, roles string) error {
	s.site.allow(s.base())
	p, err := proc.Start(s.o.Verifyd, []string{"serve"}, slices.Concat(s.o.Env, s.settings(roles)), nil, nil)
	if err != nil {
		return err
	}
	s.Process = p
	if err := s.becomeReady(ctx); err != nil {
		s.Kill()
		return err
	}
	s.ready = time.Since(p.Began)
	return nil
}

// settings are the service's defaults except for what would prevent a benchmark: limits, and the ban on
// receivers on this machine.
func (s *service) settings(roles string) []string {
	env := append([]string{
		"VERIFYD_LISTEN=" + s.listen, "VERIFYD_ADMIN_LISTEN=" + s.admin, "VERIFYD_BASE_URL=" + s.base(),
		"VERIFYD_ROLES=" + roles,
		"VERIFYD_LOG_LEVEL=warn", "VERIFYD_LOG_FORMAT=json",
		fmt.Sprintf("VERIFYD_RATE_LIMIT=%d/s", noLimit), fmt.Sprintf("VERIFYD_RATE_BURST=%d", noLimit),
		"VERIFYD_MONTHLY_QUOTA=" + noQuota,
		fmt.Sprintf("VERIFYD_SIGN_IN_LIMIT=%d/s", noLimit), // the bench's users have one address
		"VERIFYD_CALLBACK_CA_FILE=" + s.site.caFile, "VERIFYD_CALLBACK_ALLOW_CIDRS=127.0.0.0/8",
		"VERIFYD_DATA_DIR=" + s.site.dir, "VERIFYD_SECRET_KEY=" + s.site.key.Encode(),
	}, s.site.env...)
	if s.o.NATSURL == "" {
		return append(env, "VERIFYD_SYNC="+s.site.sync, "VERIFYD_COPY_TO="+s.site.copyTo)
	}
	env = append(env, "VERIFYD_NATS_URL="+s.o.NATSURL, "VERIFYD_NATS_CREDS="+s.o.NATSCreds)
	if s.o.Replicas > 0 {
		env = append(env, fmt.Sprintf("VERIFYD_REPLICAS=%d", s.o.Replicas))
	}
	return env
}

// becomeReady requests /readyz until it is 200.
func (s *service) becomeReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ask := load.NewConn(s.admin)
	defer ask.Close()
	request := load.Request(http.MethodGet, s.admin, "/readyz", "", "")
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if a, err := ask.Do(ctx, request); err == nil && a.Status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.Exited:
			return s.Failure()
		case <-ctx.Done():
			return fmt.Errorf("the service does not become ready: %w: %s", ctx.Err(), s.Log())
		}
	}
}

// enroll connects to the service's store and creates an account and a key, as an operator does.
func (s *service) enroll(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	accounts, err := accountstore.New(ctx, s.conn, s.site.key)
	if err != nil {
		return err
	}
	if s.account, err = accounts.EnsureAccount(ctx, access.Operator("bench"), benchAccount); err != nil {
		return err
	}
	if s.apiKey, _, err = accounts.CreateKey(ctx, access.Operator("bench"), s.account.ID,
		account.KeyOptions{}); err != nil {
		return err
	}
	return s.knowsKey(ctx)
}

// connect connects to the embedded server as the operator's commands do, or to the external one.
func (s *service) connect(ctx context.Context) (err error) {
	if s.conn != nil {
		return nil
	}
	o := natsconf.ConnectOptions{
		URL: s.o.NATSURL, CredsFile: s.o.NATSCreds, Name: "verifyd bench", Log: zerolog.Nop(),
	}
	if o.URL == "" {
		end, err := embedded.ReadEndpoint(s.site.dir)
		if err != nil {
			return err
		}
		o.URL, o.User, o.Password = end.URL, end.User, end.Password
	}
	s.conn, err = natsconf.Connect(ctx, o)
	return err
}

// disconnect is called before the service is stopped: the connection would try to reconnect without end.
func (s *service) disconnect() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// knowsKey waits until the key, which this process created, is in the service's memory.
func (s *service) knowsKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, load.AnswerWithin)
	defer cancel()
	ask := load.NewConn(s.listen)
	defer ask.Close()
	request := load.Request(http.MethodGet, s.listen, "/sessions/"+strings.Repeat("a", 32), s.authorization(),
		"")
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		a, err := ask.Do(ctx, request)
		if err == nil && a.Status == http.StatusNotFound { // known, and no such session
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the service does not know the API key: it answered %d", a.Status),
				err, ctx.Err())
		}
	}
}

func (s *service) authorization() string { return "Authorization: Bearer " + s.apiKey + "\r\n" }

// initRequest is POST /verify/init with a callback to the URL.
func (s *service) initRequest(callbackURL string) []byte {
	return load.InitRequest(s.listen, s.authorization(), callbackURL)
}

// discard ends the service and removes its store.
func (s *service) discard() {
	s.disconnect()
	s.Kill()
	_ = os.RemoveAll(s.site.dir)
	if s.site.copyTo != "" {
		_ = os.RemoveAll(s.site.copyTo)
	}
}

// diskBytes returns the size of the store's files.
func (s *service) diskBytes() (total int64) {
	_ = filepath.WalkDir(s.site.dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that was removed meanwhile takes no space
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// messages returns how many messages a stream holds.
func (s *service) messages(ctx context.Context, stream string) (int64, error) {
	st, err := s.conn.JS.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", stream, err)
	}
	return int64(st.CachedInfo().State.Msgs), nil //nolint:gosec // no store holds 2^63 messages
}
