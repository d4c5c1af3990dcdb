package permission_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/topology"
)

// obeyed are the headers of a message that a server obeys, each with a value that would do harm. %s is the
// subject of a record that is there.
var obeyed = []nats.Header{
	{"Nats-Rollup": {"all"}},
	{"Nats-Rollup": {"sub"}},
	{"Nats-TTL": {"1s"}},
	{"Nats-TTL": {"never"}},
	{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"%s"}},
	{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"%s"}, "Nats-Schedule-TTL": {"1s"}},
	{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"%s"}, "Nats-Schedule-Rollup": {"sub"}},
	{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"%s"}, "Nats-Rollup": {"all"}},
	{"Nats-Schedule-Next": {"purge"}, "Nats-Scheduler": {"%s"}},
	{"Nats-Incr": {"-1000"}},
	{"Nats-Counter-Sources": {"{}"}},
	{"Nats-Marker-Reason": {"MaxAge"}},
	{"Nats-Stream-Source": {"KV_accounts 1"}, "Nats-Rollup": {"all"}},
	{"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"none"}},
	{"Nats-Expected-Last-Msg-Id": {""}},
	{"Nats-Expected-Stream": {"KV_keys"}},
	{"Nats-Msg-Id": {"stolen"}},
	{"Nats-Trace-Dest": {"%s"}},
	{"Nats-Required-Api-Level": {"0"}},
	{"Nats-Batch-Id": {"a"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}},
	{
		"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"},
		"Nats-Rollup": {"all"},
	},
	{"Nats-Batch-Id": {"c"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}, "Nats-TTL": {"1s"}},
}

const (
	record = `{"v":1,"record":"a service's"}`
	stolen = `{"v":1,"record":"a thief's"}`
)

// theft is what a role's credential is tried for, on a server where each stream has a record on each of its
// kinds of subjects.
type theft struct {
	role    permission.Role
	nc      *nats.Conn // with the role's credential
	owner   *natsconf.Conn
	streams []jetstream.StreamConfig
}

// of makes a subject of a pattern.
func of(pattern, name string) string {
	return strings.NewReplacer("*", name, ">", name).Replace(pattern)
}

// TestWhatAStolenCredentialCanDo compares the table in SECURITY with what a server lets each role do: by each
// header that it obeys, by the reply subjects of requests, and by consumers that deliver where they should
// not.
func TestWhatAStolenCredentialCanDo(t *testing.T) {
	t.Parallel()
	table := securityTable(t)
	for _, role := range []permission.Role{
		permission.RoleEdge, permission.RoleDispatcher, permission.RoleMonitor,
	} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			e := natstest.StartExternal(t)
			x := theft{role: role, owner: e.Connect(t, permission.RoleOperator),
				nc: e.Connect(t, role).NC, streams: topology.New(topology.Options{}).Streams}
			natstest.Ensure(t, x.owner)
			x.fill(t)
			can := map[string]harm{}
			for _, try := range []func(*testing.T){x.publish, x.useHeaders, x.takeReplies, x.takeDeliveries} {
				try(t)
				for _, s := range x.streams {
					can[s.Name] = can[s.Name].and(x.look(t, s))
				}
			}
			for _, s := range x.streams {
				if got, want := can[s.Name].String(), table[s.Name][string(role)]; got != want {
					t.Errorf("SECURITY says of %s's credential and %s: %q; it is %q", role, s.Name, want, got)
				}
			}
		})
	}
}

// fill stores two records on each kind of subject: one that the thief aims at, and one that stays.
func (x theft) fill(t *testing.T) {
	t.Helper()
	for _, s := range x.streams {
		for _, pattern := range s.Subjects {
			for _, name := range []string{"there", "stays"} {
				m := &nats.Msg{Subject: of(pattern, name), Data: []byte(record)}
				if s.AllowMsgCounter {
					m.Data, m.Header = nil, nats.Header{"Nats-Incr": {"5"}}
				}
				if _, err := x.owner.JS.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// publish stores what the role writes: on a new subject, and on that of a record.
func (x theft) publish(t *testing.T) {
	t.Helper()
	for _, pattern := range permission.WritesOf(x.role) {
		x.store(t, of(pattern, "there"), nil)
		x.store(t, of(pattern, "own"), nil)
	}
}

// useHeaders tries each header on the same subjects. A server sends some of what it makes of them later.
func (x theft) useHeaders(t *testing.T) {
	t.Helper()
	for _, pattern := range permission.WritesOf(x.role) {
		for i, h := range obeyed {
			header := nats.Header{}
			for field, values := range h {
				header[field] = []string{strings.Replace(values[0], "%s", of(pattern, "there"), 1)}
			}
			x.store(t, of(pattern, "there"), header)
			x.store(t, of(pattern, fmt.Sprint("own", i)), header)
		}
	}
	x.settle(t)
}

// store publishes the thief's record. What the server answers does not matter, but that it has decided.
func (x theft) store(t *testing.T, subject string, header nats.Header) {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(stolen), Header: header}
	if header.Get("Nats-Incr") != "" {
		m.Data = nil
	}
	if _, err := x.nc.RequestMsg(m, natstest.TestTimeout); err != nil {
		t.Fatalf("%s with %v: %v", m.Subject, m.Header, err)
	}
}

// takeReplies lets the server send its answers to subjects of all streams.
func (x theft) takeReplies(t *testing.T) {
	t.Helper()
	asks := map[string]string{"$JS.API.INFO": ""}
	for _, s := range x.streams {
		if x.may(t, "$JS.API.STREAM.MSG.GET."+s.Name) {
			asks["$JS.API.STREAM.MSG.GET."+s.Name] = `{"seq":1}`
		}
	}
	for _, pattern := range permission.WritesOf(x.role) {
		asks[of(pattern, "asked")] = stolen
	}
	for subject, data := range asks {
		for _, s := range x.streams {
			for _, pattern := range s.Subjects {
				for _, name := range []string{"there", "new"} {
					if err := x.nc.PublishRequest(subject, of(pattern, name), []byte(data)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	x.settle(t)
}

// takeDeliveries lets consumers deliver messages, with the headers that their streams accepted, to subjects
// of all streams: pushed, and as answers to a pull.
func (x theft) takeDeliveries(t *testing.T) {
	t.Helper()
	for n, from := range x.streams {
		if !x.may(t, "$JS.API.CONSUMER.CREATE."+from.Name+".x.y") {
			continue
		}
		for i, to := range x.streams {
			for j, pattern := range to.Subjects {
				name := fmt.Sprintf("thief-%d-%d-%d", n, i, j)
				for suffix, target := range map[string]string{"push": of(pattern, "there"), "pull": ""} {
					x.consume(t, from, name+suffix, target)
				}
				pull := "$JS.API.CONSUMER.MSG.NEXT." + from.Name + "." + name + "pull"
				ask := []byte(`{"batch":50,"no_wait":true}`)
				if err := x.nc.PublishRequest(pull, of(pattern, "there"), ask); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	x.settle(t)
}

// consume makes a consumer of all that a stream holds. A server may refuse it.
func (x theft) consume(t *testing.T, from jetstream.StreamConfig, name, target string) {
	t.Helper()
	filter := from.Subjects[0]
	body, err := json.Marshal(map[string]any{"stream_name": from.Name, "config": map[string]any{
		"name": name, "deliver_subject": target, "filter_subject": filter, "ack_policy": "none",
		"deliver_policy": "all", "mem_storage": true, "num_replicas": 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	subject := "$JS.API.CONSUMER.CREATE." + from.Name + "." + name + "." + filter
	if _, err := x.nc.Request(subject, body, natstest.TestTimeout); err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
}

// settle waits until what was requested before is decided: the server's answers and deliveries are in the
// order of their stream, and a stream's leader takes messages in the order in which they come.
func (x theft) settle(t *testing.T) {
	t.Helper()
	if err := x.nc.FlushTimeout(natstest.TestTimeout); err != nil {
		t.Fatal(err)
	}
	var before uint64
	natstest.Await(t, "the server is done", func() bool {
		var now uint64
		for _, s := range x.streams {
			info, err := x.owner.JS.Stream(t.Context(), s.Name)
			if err != nil {
				t.Fatal(err)
			}
			now += info.CachedInfo().State.LastSeq
		}
		same := now == before
		before = now
		return same
	})
}

// may reports whether the role may publish on a subject.
func (x theft) may(t *testing.T, subject string) bool {
	t.Helper()
	p := permission.Of(x.role, "NAME").Publish
	matches := func(filter string) bool { return server.SubjectMatchesFilter(subject, filter) }
	return slices.ContainsFunc(p.Allow, matches) && !slices.ContainsFunc(p.Deny, matches)
}

// harm is what has happened to a stream.
type harm struct {
	changes bool // the thief's record is in place of one that was there, or has ended the one's life
	adds    bool // the thief's record is on a subject that had none
	spoils  bool // an answer of the server is in place of a record
	empties bool // a record that the thief did not aim at is gone
}

func (h harm) and(more harm) harm {
	return harm{h.changes || more.changes, h.adds || more.adds, h.spoils || more.spoils,
		h.empties || more.empties}
}

func (h harm) String() string {
	var words []string
	switch {
	case h.changes:
		words = append(words, "changes")
	case h.adds:
		words = append(words, "adds")
	}
	if h.spoils {
		words = append(words, "spoils")
	}
	if h.empties {
		words = append(words, "empties")
	}
	if len(words) == 0 {
		return "–"
	}
	return strings.Join(words, ", ")
}

// look returns what has happened to a stream. No fact may be another one, nor have a life of its own.
func (x theft) look(t *testing.T, c jetstream.StreamConfig) (h harm) {
	t.Helper()
	s, err := x.owner.JS.Stream(t.Context(), c.Name)
	if err != nil {
		t.Fatal(err)
	}
	intact := 0
	there := map[string]bool{}
	for from := uint64(1); ; from++ {
		m, err := s.GetMsg(t.Context(), from, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		from = m.Sequence
		victim := slices.ContainsFunc(c.Subjects, func(p string) bool { return of(p, "there") == m.Subject })
		there[m.Subject] = true
		own := slices.ContainsFunc(c.Subjects, func(p string) bool {
			return server.SubjectMatchesFilter(m.Subject, p)
		})
		switch {
		case !own: // a consumer delivered it, under its own subject: nothing reads it there
		case bytes.Equal(m.Data, []byte(record)),
			c.AllowMsgCounter && bytes.Equal(m.Data, []byte(`{"val":"5"}`)):
			intact++
		case bytes.Equal(m.Data, []byte(stolen)), c.AllowMsgCounter && m.Header.Get("Nats-Incr") != "":
			h.changes = h.changes || victim
			h.adds = h.adds || !victim
		default: // an answer of the server
			h.spoils = true
		}
		if c.Name == topology.StreamCompletions && m.Header.Get("Nats-TTL") != "" {
			t.Errorf("the fact %s has a life of its own", m.Subject)
		}
	}
	for _, p := range c.Subjects {
		h.changes = h.changes || !there[of(p, "there")]
		h.empties = h.empties || !there[of(p, "stays")]
	}
	if c.DiscardNewPerSubject && intact != 2*len(c.Subjects) {
		t.Errorf("%d of %d facts in %s are as they were", intact, 2*len(c.Subjects), c.Name)
	}
	return h
}

// securityTable reads the table of SECURITY: what each role's credential can do to each stream.
func securityTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "| stream | edge | dispatcher | monitor |\n")
	if !ok {
		t.Fatal("SECURITY has no table of what a stolen credential can do")
	}
	rows := map[string]map[string]string{}
	_, after, _ = strings.Cut(after, "\n")
	for line := range strings.Lines(after) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			break
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows[cells[1]] = map[string]string{"edge": cells[2], "dispatcher": cells[3], "monitor": cells[4]}
	}
	return rows
}
