package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/service"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/version"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	sessionfacts "verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	sessionstore "verifyd/sessions/store"
)

const (
	// statusFor bounds one look at the service.
	statusFor = 10 * time.Second
	// StatusEvery is the pause between two looks of --watch, unless told otherwise; each costs the leaders
	// about thirty requests.
	StatusEvery = 2 * time.Second
	// verdictsFor is how far back verdicts are counted.
	verdictsFor = time.Hour
)

// Status shows how the service is, once or again and again.
type Status struct {
	command.Store `embed:""`

	JSON  bool          `name:"json" help:"Print one JSON document, and with --watch one a line."`
	Watch bool          `help:"Look again and again: drawn anew on a terminal, otherwise a line each time."`
	Every time.Duration `default:"${status_every}" help:"The pause between two looks of --watch, at least 1s."`
}

// errTroubled is returned if something is not well.
var errTroubled = errors.New("something is not well")

// Run shows how the service is. It fails if something is not well, so that scripts can ask.
func (s Status) Run(ctx context.Context, c command.Console) error {
	if s.Every < time.Second {
		return config.Usage(fmt.Errorf("--every: %s is less than a second; for example 2s", s.Every))
	}
	var f config.Faults
	cfg := s.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	st, err := connectStatus(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	if s.Watch {
		return s.watch(ctx, c, st, cfg.Topology)
	}
	doc, err := lookAt(ctx, st, cfg.Topology)
	if err != nil {
		return err
	}
	if s.JSON {
		e := json.NewEncoder(c.Out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		err = e.Encode(doc)
	} else {
		err = doc.draw(c.Out)
	}
	if err == nil && !doc.OK {
		err = errTroubled
	}
	return err
}

// connectStatus reaches a service that runs. Unlike other commands it starts no server of its own: that one
// is down is what it is to tell.
func connectStatus(ctx context.Context, c config.Store) (*store.Store, error) {
	if c.NATSURL == "" {
		conn, err := store.ConnectRunning(ctx, c.DataDir, zerolog.Nop())
		if path, ok := errors.AsType[*fs.PathError](err); ok && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the data directory %q cannot be read; the disk under it may have "+
				"failed: %w", c.DataDir, path)
		}
		if err != nil {
			return nil, fmt.Errorf("no service runs on the data directory %q: %w", c.DataDir, err)
		}
		return &store.Store{Conn: conn}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusFor)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: c.NATSURL, CredsFile: c.NATSCreds, RootCAs: c.NATSRoots, Name: "verifyd status",
		Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	return &store.Store{Conn: conn}, nil
}

// StatusDoc is what an operator asks first, as --json prints it.
type StatusDoc struct {
	At        time.Time       `json:"at"`
	OK        bool            `json:"ok"`
	Trouble   []string        `json:"trouble"` // what is not well; never null
	Version   string          `json:"version"` // of the command that looked
	Server    serverDoc       `json:"server"`
	Processes []fleet.Process `json:"processes"`
	Streams   []streamDoc     `json:"streams"`
	Backlog   backlogDoc      `json:"backlog"`
	Verdicts  verdictsDoc     `json:"verdicts"`
	Store     fleet.Room      `json:"store"`
	Copy      *fleet.Copy     `json:"copy"`   // of an embedded store, elsewhere; null: there is none
	Hosts     []fleet.Host    `json:"hosts"`  // whose breaker is not closed
	Paused    []pauses.Pause  `json:"paused"` // by an operator
}

type serverDoc struct {
	Version string `json:"version"`
	Cluster string `json:"cluster"` // empty: a single server
	URL     string `json:"url"`
}

type streamDoc struct {
	Name     string `json:"name"`
	Leader   string `json:"leader"`
	Copies   int    `json:"copies"`
	Current  int    `json:"current"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

type backlogDoc struct {
	Waiting   uint64     `json:"waiting"`
	Given     uint64     `json:"given"`
	Scheduled uint64     `json:"scheduled"`
	Oldest    *time.Time `json:"oldest"` // since when the oldest is to be sent; null: there is none
}

type verdictsDoc struct {
	Since time.Time                    `json:"since"`
	By    map[sessionfacts.Verdict]int `json:"by"`
}

// lookAt asks for everything.
func lookAt(ctx context.Context, st *store.Store, o topology.Options) (*StatusDoc, error) {
	ctx, cancel := context.WithTimeout(ctx, statusFor)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	doc := &StatusDoc{At: now, Version: version.Text(), Trouble: []string{}, Hosts: []fleet.Host{}}
	nc := st.Conn.NC
	doc.Server = serverDoc{
		Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(),
		URL: nc.ConnectedUrlRedacted(),
	}
	var err error
	if doc.Processes, err = fleet.Ask(ctx, st.Conn); err != nil {
		return doc, err
	}
	if info, err := st.Conn.JS.AccountInfo(ctx); err != nil {
		// its process may say why
		doc.Trouble = append(doc.Trouble, "store: it does not answer: "+err.Error())
	} else {
		doc.Store = fleet.Room{Used: int64(info.Store), //nolint:gosec // a store of 2^63 bytes is not near
			Limit: max(info.Limits.MaxStore, 0)}
	}
	for _, p := range doc.Processes {
		// of an embedded store only its process knows it
		doc.Store.Limit = cmp.Or(doc.Store.Limit, p.Store.Limit)
		doc.Copy = cmp.Or(doc.Copy, p.Copy)
	}
	health := provision.Ensurer{Conn: st.Conn, Topology: topology.New(o)}.Health(ctx)
	doc.judge(health)
	if err := doc.deliveries(ctx, st); err != nil {
		// a stream that does not answer must not hide the rest
		doc.Trouble = append(doc.Trouble, "deliveries: "+err.Error())
	}
	for _, h := range fleet.Hosts(doc.Processes) {
		if h.Breaker != fleet.BreakerClosed {
			doc.Hosts = append(doc.Hosts, h)
		}
	}
	doc.OK = len(doc.Trouble) == 0
	return doc, nil
}

// deliveries asks how deliveries stand. They are counted without opening what is sealed.
func (d *StatusDoc) deliveries(ctx context.Context, st *store.Store) error {
	facts := sessionstore.New(sessionstore.Config{Conn: st.Conn, Key: secretbox.Key{}})
	backlog, err := facts.Backlog(ctx)
	if err != nil {
		return err
	}
	d.Backlog = backlogDoc{Waiting: backlog.Waiting, Given: backlog.Given, Scheduled: backlog.Scheduled}
	if !backlog.Oldest.IsZero() {
		d.Backlog.Oldest = &backlog.Oldest
	}
	verdicts, err := facts.Verdicts(ctx, d.At.Add(-verdictsFor))
	if err != nil {
		return err
	}
	d.Verdicts = verdictsDoc(verdicts)
	decided, err := pauses.NewStore(ctx, st.Conn, nil)
	if err != nil {
		return err
	}
	d.Paused, err = decided.List(ctx)
	return err
}

// judge says what is not well.
func (d *StatusDoc) judge(h provision.Health) {
	trouble := func(format string, args ...any) {
		d.Trouble = append(d.Trouble, fmt.Sprintf(format, args...))
	}
	for _, role := range []string{"edge", "dispatcher"} {
		if !slices.ContainsFunc(d.Processes, func(p fleet.Process) bool {
			return slices.Contains(p.Roles, role)
		}) {
			trouble("no %s answers", role)
		}
	}
	for _, p := range d.Processes {
		if !p.Ready {
			trouble("%s, process %d, is not ready: %s", p.Host, p.PID, reasons(p))
		} else if slices.ContainsFunc(p.Unwell,
			func(u fleet.Trouble) bool {
				return u.Check == service.CheckStore || u.Check == service.CheckCopy
			}) {
			trouble("%s, process %d: %s", p.Host, p.PID, reasons(p))
		}
	}
	for _, s := range h.Streams {
		d.Streams = append(d.Streams, streamDoc{s.Name, s.Leader, s.Copies, s.Current, s.Messages, s.Bytes})
		if _, err := s.Check(); err != nil {
			trouble("stream %s: %v", s.Name, err)
		}
	}
	for _, c := range h.Consumers {
		if _, err := c.Check(); err != nil {
			trouble("consumer %s: %v", c.Name, err)
		}
	}
	if _, err := h.CheckClock(); err != nil && h.SkewKnown {
		trouble("clock: %v", err)
	}
	if d.Store.Limit > 0 && float64(d.Store.Used) >= check.FullWarning*float64(d.Store.Limit) {
		trouble("store: %s; from 90 %% on no new session is taken",
			service.RoomText(d.Store.Used, d.Store.Limit))
	}
}
