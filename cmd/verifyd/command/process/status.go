package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	sessionfacts "verifyd/sessions/facts"
	"verifyd/sessions/pauses"
	sessionstore "verifyd/sessions/store"
)

const (
	// statusTimeout bounds one reading of the service's state.
	statusTimeout = 10 * time.Second
	// StatusEvery is the default interval of --watch; each reading costs the leaders about thirty requests.
	StatusEvery = 2 * time.Second
	// verdictsFor is how far back verdicts are counted.
	verdictsFor = time.Hour
)

// Status shows the state of the service, once or repeatedly.
type Status struct {
	command.Local `embed:""`

	JSON  bool          `name:"json" help:"Print one JSON document; with --watch, one per line."`
	Watch bool          `help:"Repeat: on a terminal the display is refreshed, otherwise each look is one line."`
	Every time.Duration `default:"${status_every}" help:"Interval of --watch, at least 1s."`
}

// errUnhealthy is returned if something is not well.
var errUnhealthy = errors.New("something is not well")

// Run shows the state of the service. It fails if something is not well, so that scripts can use it.
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
	doc, err := readStatus(ctx, st, cfg.Topology)
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
		err = errUnhealthy
	}
	return err
}

// connectStatus connects to a running service. Unlike other commands it starts no server of its own: status
// is to report that there is none.
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
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
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

// StatusDoc is what an operator needs to know first, as --json prints it.
type StatusDoc struct {
	At        time.Time       `json:"at"`
	OK        bool            `json:"ok"`
	Problems  []string        `json:"trouble"` // what is not well; never null
	Version   string          `json:"version"` // of this command
	Server    serverDoc       `json:"server"`
	Processes []fleet.Process `json:"processes"`
	Streams   []streamDoc     `json:"streams"`
	Backlog   backlogDoc      `json:"backlog"`
	Verdicts  verdictsDoc     `json:"verdicts"`
	Store     fleet.StoreUse  `json:"store"`
	Copy      *fleet.Copy     `json:"copy"`    // of an embedded store, elsewhere; null if there is none
	Records   *fleet.Records  `json:"records"` // of an embedded store; null if they are not read again
	Hosts     []fleet.Host    `json:"hosts"`   // whose breaker is not closed
	Paused    []pauses.Pause  `json:"paused"`  // by an operator
	// Certificates that processes use, each as the process reports it whose expires first; never null
	Certificates []certificate.Certificate `json:"certificates"`
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
	Oldest    *time.Time `json:"oldest"` // since when the oldest is due; null if there is none
}

type verdictsDoc struct {
	Since time.Time                    `json:"since,omitzero"` // missing if they could not be read
	By    map[sessionfacts.Verdict]int `json:"by"`
}

// readStatus reads everything.
func readStatus(ctx context.Context, st *store.Store, o topology.Options) (*StatusDoc, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_ = st.Conn.Clock.Read(ctx) // what does not answer is reported below
	now := st.Conn.Clock.Now().UTC().Truncate(time.Millisecond)
	doc := &StatusDoc{At: now, Version: version.Text(), Problems: []string{}, Hosts: []fleet.Host{},
		Certificates: []certificate.Certificate{}}
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
		// its process may report why
		doc.Problems = append(doc.Problems, "store: it does not answer: "+err.Error())
	} else {
		doc.Store = fleet.StoreUse{Used: int64(info.Store), //nolint:gosec // a store of 2^63 bytes is not near
			Limit: max(info.Limits.MaxStore, 0)}
	}
	for _, p := range doc.Processes {
		// for an embedded store only its process has it
		doc.Store.Limit = cmp.Or(doc.Store.Limit, p.Store.Limit)
		doc.Copy, doc.Records = cmp.Or(doc.Copy, p.Copy), cmp.Or(doc.Records, p.Records)
	}
	health := provision.Ensurer{Conn: st.Conn, Topology: topology.New(o)}.Health(ctx)
	doc.judge(health)
	if err := doc.deliveries(ctx, st); err != nil {
		// a stream that does not answer must not hide the rest
		doc.Problems = append(doc.Problems, "deliveries: "+err.Error())
	}
	for _, h := range fleet.Hosts(doc.Processes) {
		if h.Breaker != fleet.BreakerClosed {
			doc.Hosts = append(doc.Hosts, h)
		}
	}
	doc.OK = len(doc.Problems) == 0
	return doc, nil
}

// deliveries reads the states of deliveries. They are counted without opening what is sealed.
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
	d.Paused, err = pauses.NewStore(st.Conn, nil).List(ctx)
	return err
}

// judge adds what is not well.
func (d *StatusDoc) judge(h provision.Health) {
	for _, role := range []string{"edge", "dispatcher"} {
		if !slices.ContainsFunc(d.Processes, func(p fleet.Process) bool {
			return slices.Contains(p.Roles, role)
		}) {
			d.problem("no %s answers", role)
		}
	}
	d.judgeProcesses()
	d.judgeCertificates()
	for _, s := range h.Streams {
		d.Streams = append(d.Streams, streamDoc{s.Name, s.Leader, s.Copies, s.Current, s.Messages, s.Bytes})
		if _, err := s.Check(); err != nil {
			d.problem("stream %s: %v", s.Name, err)
		}
	}
	for _, c := range h.Consumers {
		if _, err := c.Check(); err != nil {
			d.problem("consumer %s: %v", c.Name, err)
		}
	}
	if _, err := h.CheckClock(); err != nil && h.SkewKnown {
		d.problem("clock: %v", err)
	}
	if d.Store.Limit > 0 && float64(d.Store.Used) >= check.FullWarning*float64(d.Store.Limit) {
		d.problem("store: %s; from 90 %% on no new session is accepted",
			service.StoreUseText(d.Store.Used, d.Store.Limit))
	}
}

// judgeCertificates gathers the certificates of all processes, and adds those that should have been renewed
// for this service.
func (d *StatusDoc) judgeCertificates() {
	first := map[string]certificate.Certificate{}
	for _, p := range d.Processes {
		for _, c := range p.Certificates {
			if known, ok := first[c.Of]; !ok || c.Expires.Before(known.Expires) {
				first[c.Of] = c
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(first)) {
		d.Certificates = append(d.Certificates, first[of])
		if first[of].Due(d.At) && !first[of].Foreign {
			d.problem("certificate of %s", first[of].Text(d.At))
		}
	}
}

func (d *StatusDoc) problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Sprintf(format, args...))
}

// judgeProcesses adds what is not well with processes, and what they have met.
func (d *StatusDoc) judgeProcesses() {
	if slices.ContainsFunc(d.Processes, func(p fleet.Process) bool { return p.KeyWaits }) {
		d.problem("master key: its change has not ended: restart every process with the new key, then run " +
			"verifyd secret rekey --finish")
	}
	for _, p := range d.Processes {
		if !p.Ready {
			d.problem("%s, process %d, is not ready: %s", p.Host, p.PID, reasons(p))
		} else if slices.ContainsFunc(p.Degraded,
			func(u fleet.Failure) bool {
				return u.Check == service.CheckStore || u.Check == service.CheckCopy
			}) {
			d.problem("%s, process %d: %s", p.Host, p.PID, reasons(p))
		}
		if p.Strays != nil && d.At.Sub(p.Strays.Last) < service.QuietAfter {
			d.problem("%s, process %d: %s", p.Host, p.PID, service.StraysText(*p.Strays))
		}
	}
}
