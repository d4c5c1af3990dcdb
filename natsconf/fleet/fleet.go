// Package fleet reports which processes of a service run, and what only they know. Processes answer a request
// on topology.SubjectFleet of core NATS. Nothing is stored, so a process that does not answer is not running.
//
// An answer holds no secret, no session and no user: versions, roles, failing checks, and receiver hosts.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/topology"
)

const (
	// maxAsk bounds the wait for answers, and askQuiet is how long without another one until all have come: a
	// process answers at once, from memory.
	maxAsk   = 3 * time.Second
	askQuiet = 400 * time.Millisecond
	// MaxHosts bounds the receiver hosts of one answer: about 50 KiB.
	MaxHosts = 200
	// maxPendingAnswers is how many answers may wait to be read.
	maxPendingAnswers = 1024
)

// Process is what a process reports about itself.
type Process struct {
	ID       string    `json:"id"` // of this run
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Roles    []string  `json:"roles"`
	Since    time.Time `json:"since"` // when it started
	Ready    bool      `json:"ready"` // it accepts requests, as /readyz reports
	Degraded []Failure `json:"unwell,omitempty"`
	Store    StoreUse  `json:"store"`
	// Key is the fingerprint of the master key that the process runs with, and SealsUnder the number of the
	// store's key that it seals under, from 1. Builds under which the key cannot be changed have neither.
	Key        string `json:"key_fingerprint,omitempty"`
	SealsUnder int    `json:"seals_under,omitzero"`
	KeyWaits   bool   `json:"key_waits,omitzero"` // it has the new key, and an earlier one still seals
	// Networks are the ids of the identity networks that lead into an edge's dashboard.
	Networks []string `json:"networks,omitempty"`
	// Names are those by which users of an edge know the service: its identity networks, and its host.
	Names []string `json:"names,omitempty"`
	// of a dispatcher: hosts where something waits or that do not answer, the worst first
	Hosts []Host `json:"hosts,omitempty"`
	Copy  *Copy  `json:"copy,omitempty"` // of a process that keeps a copy of its store elsewhere
	// of a process that reads the records of its store again
	Records *Records `json:"records,omitempty"`
	// of a dispatcher: the whole service's, as last measured
	Backlog *Backlog `json:"backlog,omitempty"`
	// of a dispatcher: the deliveries that it has handed in because no dispatcher had them; nil if none
	Strays *Strays `json:"strays,omitempty"`
	// Certificates are those that the process has read, and those that servers have shown to it.
	Certificates []certificate.Certificate `json:"certificates,omitempty"`
}

// Strays are deliveries that had not ended and that no dispatcher had, nor would get. A dispatcher has handed
// them in.
type Strays struct {
	Found   int       `json:"found"`   // since the process started
	Last    time.Time `json:"last"`    // when the last was found
	Session string    `json:"session"` // the last one's
}

// Backlog counts the deliveries of the whole service that have not ended, by where they wait; see
// lists.Backlog.
type Backlog struct {
	At        time.Time `json:"at"` // when it was measured
	Waiting   uint64    `json:"waiting"`
	Given     uint64    `json:"given"`
	Scheduled uint64    `json:"scheduled"`
	Oldest    time.Time `json:"oldest,omitzero"` // since when the oldest is to be sent; zero: there is none
}

// Copy is the copy of the store that a process keeps.
type Copy struct {
	Dir      string    `json:"dir"`
	At       time.Time `json:"at,omitzero"` // the store as it was then is in it; zero: there is none yet
	Lag      float64   `json:"lag_seconds"`
	Bytes    int64     `json:"bytes"`
	SameDisk bool      `json:"same_disk,omitempty"` // it is on the filesystem of the store, and lost with it
	Failure  string    `json:"trouble,omitempty"`   // why it is not as it should be
}

// String describes the state of the copy in a line.
func (c Copy) String() string {
	text := fmt.Sprintf("%s, as of %s, %.1f s behind, %d MiB", c.Dir, c.At.Format(time.RFC3339), c.Lag,
		c.Bytes>>20)
	if c.At.IsZero() {
		text = c.Dir + ", none yet"
	}
	if c.SameDisk {
		text += ", on the filesystem of the store: it is lost with that disk"
	}
	return text
}

// Records is what is known of the records in an embedded store's files.
type Records struct {
	Read    time.Time `json:"read"`    // when all of them had been read the last time
	Damaged int       `json:"damaged"` // places that were found damaged
}

// String describes the records in a line.
func (r Records) String() string {
	text := "every record intact"
	if r.Damaged > 0 {
		text = fmt.Sprintf("%d damaged places", r.Damaged)
	}
	return text + " at " + r.Read.Format(time.RFC3339)
}

// Failure is a check of /readyz that fails.
type Failure struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// StoreUse is how much of the store is used, in bytes; a limit of 0 means that none is known.
type StoreUse struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

// Host is a receiver host as one dispatcher sees it.
type Host struct {
	Host    string    `json:"host"`              // host and port
	Breaker string    `json:"breaker"`           // closed, open or half-open
	Since   time.Time `json:"since,omitzero"`    // since when the breaker is not closed
	Waiting int       `json:"waiting,omitempty"` // deliveries that wait there in this process
	Class   string    `json:"class,omitempty"`   // why the last dial did not reach it
	Detail  string    `json:"detail,omitempty"`
}

// BreakerClosed is the state in which deliveries pass.
const BreakerClosed = "closed"

// Presence is the actor that answers for a process.
type Presence struct {
	conn   *natsconf.Conn
	report func() Process
	log    zerolog.Logger
	id     string
}

// NewPresence returns the actor; report is called for each question and returns at once. The ID is filled in.
func NewPresence(c *natsconf.Conn, report func() Process, log zerolog.Logger) *Presence {
	return &Presence{conn: c, report: report, log: log, id: rand.Text()}
}

// String names the actor in the supervisor's log.
func (p *Presence) String() string { return "presence" }

// Serve answers until ctx ends.
func (p *Presence) Serve(ctx context.Context) error {
	asked := make(chan *nats.Msg, maxPendingAnswers)
	sub, err := p.conn.NC.ChanSubscribe(topology.SubjectFleet, asked)
	if err != nil {
		return fmt.Errorf("answer for this process: %w: %w", natsconf.ErrUnavailable, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case m := <-asked:
			p.answer(m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer answers with one message.
func (p *Presence) answer(m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	report := p.report()
	report.ID, report.Hosts = p.id, report.Hosts[:min(len(report.Hosts), MaxHosts)]
	data, err := json.Marshal(report)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		p.log.Warn().Err(err).Msg("this process could not report its state")
	}
}

// Ask asks all processes, and returns those that answer, by machine and role. It takes about half a second,
// and at most 3 s. Its error is natsconf.ErrUnavailable; that no process runs is not an error.
func Ask(ctx context.Context, c *natsconf.Conn) ([]Process, error) {
	q, err := newQuestion(c)
	if err != nil {
		return nil, err
	}
	defer q.end()
	if err := q.put(); err != nil {
		return nil, err
	}
	late, quiet := time.NewTimer(maxAsk), time.NewTimer(askQuiet)
	defer late.Stop()
	defer quiet.Stop()
	var found []Process
	for {
		select {
		case m := <-q.answers:
			if m.Header.Get("Status") == noResponders {
				return nil, nil
			}
			var p Process
			if json.Unmarshal(m.Data, &p) == nil { // an answer that cannot be read is from another build
				found = append(found, p)
			}
			quiet.Reset(askQuiet)
		case <-quiet.C:
			return sorted(found), nil
		case <-late.C:
			return sorted(found), nil
		case <-ctx.Done():
			return nil, unasked(ctx.Err())
		}
	}
}

// Everyone is Ask for callers that must not miss a slow process: it asks for 3 s. A process whose answer
// cannot be read has the version "unknown", and nothing else. Its error is natsconf.ErrUnavailable.
func Everyone(ctx context.Context, c *natsconf.Conn) ([]Process, error) {
	all := map[string]Process{}
	err := listen(ctx, c, func(m *nats.Msg) (done bool) {
		var p Process
		if json.Unmarshal(m.Data, &p) != nil {
			p = Process{Version: "unknown"}
		}
		all[p.ID] = p
		return false
	})
	return sorted(slices.Collect(maps.Values(all))), err
}

// AnyRunning reports whether at least one process runs, for callers that must not take a slow process for
// none: only 3 s of silence, with questions repeated for processes that were just connecting, mean that none
// runs. Its error is natsconf.ErrUnavailable.
func AnyRunning(ctx context.Context, c *natsconf.Conn) (runs bool, err error) {
	err = listen(ctx, c, func(*nats.Msg) (done bool) {
		runs = true
		return true
	})
	return runs, err
}

// listen repeats the question for 3 s, and calls take with each answer until that is done.
func listen(ctx context.Context, c *natsconf.Conn, take func(*nats.Msg) (done bool)) error {
	q, err := newQuestion(c)
	if err != nil {
		return err
	}
	defer q.end()
	late, again := time.NewTimer(maxAsk), time.NewTicker(askQuiet)
	defer late.Stop()
	defer again.Stop()
	if err := q.put(); err != nil {
		return err
	}
	for {
		select {
		case m := <-q.answers:
			if m.Header.Get("Status") != noResponders && take(m) {
				return nil
			}
		case <-again.C:
			if err := q.put(); err != nil {
				return err
			}
		case <-late.C:
			return nil
		case <-ctx.Done():
			return unasked(ctx.Err())
		}
	}
}

// question is put to all processes, once or more.
type question struct {
	nc      *nats.Conn
	sub     *nats.Subscription
	answers chan *nats.Msg
}

func newQuestion(c *natsconf.Conn) (*question, error) {
	q := &question{nc: c.NC, answers: make(chan *nats.Msg, maxPendingAnswers)}
	var err error
	if q.sub, err = c.NC.ChanSubscribe(c.NC.NewInbox(), q.answers); err != nil {
		return nil, unasked(err)
	}
	return q, nil
}

func (q *question) put() error {
	if err := q.nc.PublishMsg(&nats.Msg{Subject: topology.SubjectFleet, Reply: q.sub.Subject}); err != nil {
		return unasked(err)
	}
	return nil
}

func (q *question) end() { _ = q.sub.Unsubscribe() }

func unasked(err error) error {
	return fmt.Errorf("ask for processes: %w: %w", natsconf.ErrUnavailable, err)
}

// noResponders is the status by which a server reports that no subscriber got a request.
const noResponders = "503"

func sorted(found []Process) []Process {
	slices.SortFunc(found, func(a, b Process) int {
		if by := strings.Compare(a.Host, b.Host); by != 0 {
			return by
		}
		if by := slices.Compare(a.Roles, b.Roles); by != 0 {
			return by
		}
		return a.PID - b.PID
	})
	return found
}

// Hosts gathers what all dispatchers see of receiver hosts: each host once, those that do not answer first,
// then by what waits.
func Hosts(all []Process) []Host {
	byName := map[string]*Host{}
	var names []string
	for _, p := range all {
		for _, h := range p.Hosts {
			known, ok := byName[h.Host]
			if !ok {
				byName[h.Host] = &h
				names = append(names, h.Host)
				continue
			}
			waiting := known.Waiting + h.Waiting
			if known.Breaker == BreakerClosed || h.Breaker != BreakerClosed && h.Since.Before(known.Since) {
				*known = h
			}
			known.Waiting = waiting
		}
	}
	hosts := make([]Host, 0, len(names))
	for _, name := range names {
		hosts = append(hosts, *byName[name])
	}
	SortHosts(hosts)
	return hosts
}

// Newest returns the backlog that was measured last; nil if no dispatcher reports one.
func Newest(all []Process) (newest *Backlog) {
	for _, p := range all {
		if p.Backlog != nil && (newest == nil || p.Backlog.At.After(newest.At)) {
			newest = p.Backlog
		}
	}
	return newest
}

// SortHosts puts hosts that do not answer first, then those where most waits.
func SortHosts(hosts []Host) {
	slices.SortFunc(hosts, func(a, b Host) int {
		if aOpen, bOpen := a.Breaker != BreakerClosed, b.Breaker != BreakerClosed; aOpen != bOpen {
			if aOpen {
				return -1
			}
			return 1
		}
		if a.Waiting != b.Waiting {
			return b.Waiting - a.Waiting
		}
		return strings.Compare(a.Host, b.Host)
	})
}
