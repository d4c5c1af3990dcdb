package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
)

const (
	// statusFor bounds one look at the service.
	statusFor = 10 * time.Second
	// statusEvery is the pause between two looks of --watch, unless told otherwise; each costs the leaders about thirty requests.
	statusEvery = 2 * time.Second
	// verdictsFor is how far back verdicts are counted.
	verdictsFor = time.Hour
)

type statusCmd struct {
	storeCmd `embed:""`

	JSON  bool          `env:"-" name:"json" help:"Print one JSON document, and with --watch one a line."`
	Watch bool          `env:"-" help:"Look again and again: drawn anew on a terminal, otherwise a line each time."`
	Every time.Duration `env:"-" default:"${status_every}" help:"The pause between two looks of --watch, at least 1s."`
}

// errTroubled is returned where something is not well.
var errTroubled = errors.New("something is not well")

// Run shows how the service is. It fails where something is not well, so that scripts can ask.
func (s statusCmd) Run(ctx context.Context, c console) error {
	if s.Every < time.Second {
		return usageError{fmt.Errorf("--every: %s is less than a second; for example 2s", s.Every)}
	}
	var f faults
	cfg := s.config(&f)
	if err := f.err(); err != nil {
		return usageError{err}
	}
	st, err := connectStatus(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.close()
	if s.Watch {
		return s.watch(ctx, c, st, cfg.topology)
	}
	doc, err := lookAt(ctx, st, cfg.topology)
	if err != nil {
		return err
	}
	if s.JSON {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		err = e.Encode(doc)
	} else {
		err = doc.draw(c.out)
	}
	if err == nil && !doc.OK {
		err = errTroubled
	}
	return err
}

// connectStatus reaches a service that runs. Unlike other commands it starts no server of its own: that one is down is what it is to tell.
func connectStatus(ctx context.Context, c storeConfig) (*store, error) {
	if c.natsURL == "" {
		conn, err := connectRunning(ctx, c.dataDir, zerolog.Nop())
		if err != nil {
			return nil, fmt.Errorf("no service runs on the data directory %q: %w", c.dataDir, err)
		}
		return &store{conn: conn}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusFor)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: c.natsURL, CredsFile: c.natsCreds, RootCAs: c.natsRoots, Name: "verifyd status", Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	return &store{conn: conn}, nil
}

// statusDoc is what an operator asks first.
type statusDoc struct {
	At        time.Time        `json:"at"`
	OK        bool             `json:"ok"`
	Trouble   []string         `json:"trouble"` // what is not well; never null
	Version   string           `json:"version"` // of the command that looked
	Server    serverDoc        `json:"server"`
	Processes []roster.Process `json:"processes"`
	Streams   []streamDoc      `json:"streams"`
	Backlog   backlogDoc       `json:"backlog"`
	Verdicts  verdictsDoc      `json:"verdicts"`
	Store     roster.Room      `json:"store"`
	Hosts     []roster.Host    `json:"hosts"`  // whose breaker is not closed
	Paused    []pauses.Pause   `json:"paused"` // by an operator
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
	Since time.Time                `json:"since"`
	By    map[sessions.Verdict]int `json:"by"`
}

// lookAt asks for everything.
func lookAt(ctx context.Context, st *store, o natsconf.TopologyOptions) (*statusDoc, error) {
	ctx, cancel := context.WithTimeout(ctx, statusFor)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	doc := &statusDoc{At: now, Version: versionText(), Trouble: []string{}, Hosts: []roster.Host{}}
	nc := st.conn.NC
	doc.Server = serverDoc{Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(), URL: nc.ConnectedUrlRedacted()}
	var err error
	if doc.Processes, err = roster.Ask(ctx, st.conn); err != nil {
		return doc, err
	}
	info, err := st.conn.JS.AccountInfo(ctx)
	if err != nil {
		return doc, fmt.Errorf("ask for the account: %w", err)
	}
	doc.Store = roster.Room{Used: int64(info.Store), Limit: max(info.Limits.MaxStore, 0)} //nolint:gosec // a store of 2^63 bytes is not near
	for _, p := range doc.Processes {
		doc.Store.Limit = cmp.Or(doc.Store.Limit, p.Store.Limit) // of an embedded store only its process knows it
	}
	health := natsconf.Ensurer{Conn: st.conn, Topology: natsconf.NewTopology(o)}.Health(ctx)
	doc.judge(health)
	if err := doc.deliveries(ctx, st); err != nil {
		doc.Trouble = append(doc.Trouble, "deliveries: "+err.Error()) // a stream that does not answer must not hide the rest
	}
	for _, h := range roster.Hosts(doc.Processes) {
		if h.Breaker != roster.BreakerClosed {
			doc.Hosts = append(doc.Hosts, h)
		}
	}
	doc.OK = len(doc.Trouble) == 0
	return doc, nil
}

// deliveries asks how deliveries stand. They are counted without opening what is sealed.
func (d *statusDoc) deliveries(ctx context.Context, st *store) error {
	facts := sessions.NewStore(sessions.Config{Conn: st.conn, Key: seal.Key{}})
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
	decided, err := pauses.NewStore(ctx, st.conn, nil)
	if err != nil {
		return err
	}
	d.Paused, err = decided.List(ctx)
	return err
}

// judge says what is not well.
func (d *statusDoc) judge(h natsconf.Health) {
	trouble := func(format string, args ...any) { d.Trouble = append(d.Trouble, fmt.Sprintf(format, args...)) }
	for _, role := range []string{"edge", "dispatcher"} {
		if !slices.ContainsFunc(d.Processes, func(p roster.Process) bool { return slices.Contains(p.Roles, role) }) {
			trouble("no %s answers", role)
		}
	}
	for _, p := range d.Processes {
		if !p.Ready {
			trouble("%s, process %d, is not ready: %s", p.Host, p.PID, reasons(p))
		} else if slices.ContainsFunc(p.Unwell, func(u roster.Trouble) bool { return u.Check == checkStore }) {
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
	if d.Store.Limit > 0 && float64(d.Store.Used) >= fullWarning*float64(d.Store.Limit) {
		trouble("store: %s; from 90 %% on no new session is taken", roomText(d.Store.Used, d.Store.Limit))
	}
}
