package simtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
	rollup        = "Nats-Rollup"
	// minScheduleWait is how long a schedule waits at least, whatever its instant.
	minScheduleWait = 250 * time.Millisecond
)

// refusal is an error answer of the server.
type refusal struct {
	Code        int    `json:"code"`
	ErrorCode   int    `json:"err_code"`
	Description string `json:"description"`
}

func newStream(b *Broker, config jetstream.StreamConfig) *stream {
	return &stream{
		broker: b, config: config, created: time.Now(), consumers: map[string]*consumer{},
		ids: map[string]seen{}, staged: map[string][]*message{}, schedules: map[string]*time.Timer{},
	}
}

// publish handles a message, or a part of a batch, and answers.
func (s *stream) publish(m wireMsg, fault Fault) {
	p := &message{subject: m.subject, header: m.header, data: m.data}
	if m.header.Get(batchID) != "" {
		s.publishPart(p, m.reply, fault)
		return
	}
	sequence, duplicate, no := s.store(p)
	answer := map[string]any{"stream": s.config.Name, "seq": sequence}
	switch {
	case no != nil:
		answer["error"] = no
	case duplicate:
		answer["duplicate"] = true
	}
	if fault.Forgotten {
		s.drop(func(m *message) bool { return m == p })
	}
	s.reply(m.reply, fault, answer)
	s.deliver()
}

func (s *stream) reply(to string, fault Fault, answer map[string]any) {
	data, err := json.Marshal(answer)
	if err != nil {
		s.broker.options.Unknown("answer: " + err.Error())
	}
	s.broker.answer(to, fault, nil, data)
}

// publishPart stages a part of a batch; the last part stores all of them, or none.
func (s *stream) publishPart(p *message, reply string, fault Fault) {
	id := p.header.Get(batchID)
	parts := s.staged[id]
	answer := map[string]any{"stream": s.config.Name, "seq": 0}
	switch number, _ := strconv.Atoi(p.header.Get(batchSequence)); {
	case !s.config.AllowAtomicPublish:
		answer["error"] = &refusal{400, 10174, "atomic publish is disabled"}
	case number != len(parts)+1: // a part is missing
		delete(s.staged, id)
		answer["error"] = &refusal{400, 10176, "atomic publish batch is incomplete"}
	case p.header.Get(batchCommit) == "":
		s.staged[id] = append(parts, p)
		return
	default:
		delete(s.staged, id)
		parts = append(parts, p)
		if no := s.checkBatch(parts); no != nil {
			answer["error"] = no
			break
		}
		for _, p := range parts {
			answer["seq"], _, _ = s.store(p)
		}
		answer["batch"], answer["count"] = id, len(parts)
	}
	s.reply(reply, fault, answer)
	s.deliver()
}

// checkBatch returns why a batch is refused, which any of its parts can cause; nil if it is not.
func (s *stream) checkBatch(parts []*message) *refusal {
	written := map[string]bool{}
	for _, p := range parts {
		if written[p.subject] && p.header.Get(jetstream.ExpectedLastSubjSeqHeader) != "" {
			return &refusal{400, 10164, "wrong last sequence"}
		}
		if no := s.check(p); no != nil {
			return no
		}
		if written[p.subject] && s.config.DiscardNewPerSubject && s.config.MaxMsgsPerSubject == 1 {
			return &refusal{503, 10077, "maximum messages per subject exceeded"}
		}
		written[p.subject] = true
	}
	return nil
}

// store stores a message, unless it is refused or a duplicate.
func (s *stream) store(p *message) (sequence uint64, duplicate bool, _ *refusal) {
	for _, h := range []string{
		"Nats-Incr", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id", rollup,
	} {
		if p.header.Get(h) != "" {
			s.broker.options.Unknown("a message with " + h)
		}
	}
	if no := s.check(p); no != nil {
		return 0, false, no
	}
	id := p.header.Get(jetstream.MsgIDHeader)
	if known, ok := s.ids[id]; ok && id != "" && time.Now().Before(known.until) {
		return known.sequence, true, nil
	}
	s.put(p)
	if id != "" {
		s.ids[id] = seen{p.sequence, p.at.Add(s.config.Duplicates)}
	}
	return p.sequence, false, nil
}

// check returns why a message is refused; nil if it is not.
func (s *stream) check(p *message) *refusal {
	_, no := s.ttlOf(p)
	if no != nil {
		return no
	}
	if want := p.header.Get(jetstream.ExpectedLastSubjSeqHeader); want != "" {
		last := uint64(0)
		if m := s.lastOn(p.subject); m != nil {
			last = m.sequence
		}
		if strconv.FormatUint(last, 10) != want {
			return &refusal{400, 10071, fmt.Sprintf("wrong last sequence: %d", last)}
		}
	}
	if pattern := p.header.Get(jetstream.ScheduleHeader); pattern != "" {
		target := p.header.Get(jetstream.ScheduleTargetHeader)
		switch {
		case !s.config.AllowMsgSchedules:
			return &refusal{400, 10188, "message schedules is disabled"}
		case target == "", target == p.subject, !matchesAny(target, s.config.Subjects):
			return &refusal{400, 10190, "message schedules target is invalid"}
		}
	}
	if s.config.DiscardNewPerSubject && s.config.MaxMsgsPerSubject == 1 && s.lastOn(p.subject) != nil {
		return &refusal{503, 10077, "maximum messages per subject exceeded"}
	}
	return nil
}

// ttlOf returns the TTL that a message requests; 0: none of its own.
func (s *stream) ttlOf(p *message) (time.Duration, *refusal) {
	text := p.header.Get(jetstream.MsgTTLHeader)
	switch {
	case text == "":
		return 0, nil
	case !s.config.AllowMsgTTL:
		return 0, &refusal{400, 10166, "per-message TTL is disabled"}
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		var seconds int
		seconds, err = strconv.Atoi(text)
		ttl = time.Duration(seconds) * time.Second
	}
	if err != nil || ttl < time.Second {
		return 0, &refusal{400, 10165, "invalid per-message TTL"}
	}
	return ttl.Truncate(time.Second), nil
}

// put stores a message that was checked.
func (s *stream) put(p *message) {
	s.last++
	p.sequence, p.at = s.last, time.Now()
	if s.config.MaxAge > 0 {
		p.until = p.at.Add(s.config.MaxAge)
	}
	if ttl, _ := s.ttlOf(p); ttl > 0 {
		p.until = p.at.Add(ttl)
	}
	if p.header.Get(jetstream.ScheduleHeader) != "" {
		p.header.Set(rollup, "sub")
		s.drop(func(m *message) bool { return m.subject == p.subject })
		s.schedule(p)
	}
	s.msgs = append(s.msgs, p)
	if limit := s.config.MaxMsgsPerSubject; limit > 0 {
		for s.count(p.subject) > limit {
			first := s.next(1, []string{p.subject})
			s.drop(func(m *message) bool { return m == first })
		}
	}
}

// schedule publishes a message on its target at its instant.
func (s *stream) schedule(p *message) {
	text, ok := strings.CutPrefix(p.header.Get(jetstream.ScheduleHeader), "@at ")
	at, err := time.Parse(time.RFC3339, text)
	if !ok || err != nil {
		s.broker.options.Unknown("the schedule " + p.header.Get(jetstream.ScheduleHeader))
		return
	}
	if before := s.schedules[p.subject]; before != nil {
		before.Stop()
	}
	s.schedules[p.subject] = time.AfterFunc(max(time.Until(at), minScheduleWait), func() {
		s.broker.mu.Lock()
		defer s.broker.mu.Unlock()
		if s.lastOn(p.subject) != p {
			return
		}
		h := nats.Header{"Nats-Scheduler": {p.subject}, "Nats-Schedule-Next": {"purge"}}
		for name, v := range p.header {
			if !strings.HasPrefix(name, "Nats-Schedule") && !strings.HasPrefix(name, "Nats-Expected-") &&
				name != rollup && name != jetstream.MsgIDHeader && name != jetstream.MsgTTLHeader {
				h[name] = v
			}
		}
		s.drop(func(m *message) bool { return m == p })
		s.put(&message{subject: p.header.Get(jetstream.ScheduleTargetHeader), header: h, data: p.data})
		s.deliver()
	})
}

// drop removes messages.
func (s *stream) drop(match func(*message) bool) { s.msgs = slices.DeleteFunc(s.msgs, match) }

// sweep removes expired messages. Every access to the messages begins with it.
func (s *stream) sweep() {
	now := time.Now()
	if slices.ContainsFunc(s.msgs, func(m *message) bool { return m.expired(now) }) {
		s.drop(func(m *message) bool { return m.expired(now) })
	}
}

func (m *message) expired(now time.Time) bool { return !m.until.IsZero() && !now.Before(m.until) }

// lastOn returns the last message on a subject, which may have wildcards; nil if there is none.
func (s *stream) lastOn(subject string) *message {
	s.sweep()
	for _, m := range slices.Backward(s.msgs) {
		if matches(m.subject, subject) {
			return m
		}
	}
	return nil
}

// next returns the first matching message at or after a sequence; nil if there is none. Without filters all
// messages match.
func (s *stream) next(from uint64, filters []string) *message {
	s.sweep()
	for _, m := range s.msgs {
		if m.sequence >= from && (len(filters) == 0 || matchesAny(m.subject, filters)) {
			return m
		}
	}
	return nil
}

// at returns the message of a sequence; nil if it was removed.
func (s *stream) at(sequence uint64) *message {
	if m := s.next(sequence, nil); m != nil && m.sequence == sequence {
		return m
	}
	return nil
}

func (s *stream) count(subject string) (n int64) {
	for _, m := range s.msgs {
		if m.subject == subject {
			n++
		}
	}
	return n
}

// deliver makes the consumers deliver new messages.
func (s *stream) deliver() {
	for _, c := range s.inOrder() {
		c.deliver()
	}
}

// inOrder returns the consumers in the order of their creation. In the order of their names a seed would not
// repeat: clients draw names at random.
func (s *stream) inOrder() []*consumer {
	byNumber := func(a, b *consumer) int { return a.number - b.number }
	return slices.SortedFunc(maps.Values(s.consumers), byNumber)
}

// info returns the answer to a request for the stream's state.
func (s *stream) info() map[string]any {
	s.sweep()
	state := jetstream.StreamState{
		Msgs: uint64(len(s.msgs)), FirstSeq: s.last + 1, LastSeq: s.last, Consumers: len(s.consumers),
	}
	if len(s.msgs) > 0 {
		state.FirstSeq = s.msgs[0].sequence
	}
	if s.last == 0 {
		state.FirstSeq = 0
	}
	return map[string]any{
		"config": s.config, "created": s.created, "state": state, "ts": time.Now(),
		"cluster": map[string]any{"leader": "simulated"}, // as a single server reports itself
	}
}
