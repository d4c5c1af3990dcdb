package simtest

import (
	"bytes"
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

func (s *stream) addConsumer(name string, config jetstream.ConsumerConfig) *consumer {
	config.Name = name
	if config.AckWait == 0 && config.AckPolicy != jetstream.AckNonePolicy {
		config.AckWait = 30 * time.Second // the server's default
	}
	s.added++
	c := &consumer{
		of: s, name: name, number: s.added, config: config, created: time.Now(), from: 1,
		filters: config.FilterSubjects, pending: map[uint64]*pending{}, given: map[uint64]int{},
	}
	if config.FilterSubject != "" {
		c.filters = []string{config.FilterSubject}
	}
	switch config.DeliverPolicy {
	case jetstream.DeliverAllPolicy:
	case jetstream.DeliverNewPolicy:
		c.from = s.last + 1
	case jetstream.DeliverByStartSequencePolicy:
		c.from = max(1, config.OptStartSeq)
	case jetstream.DeliverLastPerSubjectPolicy:
		c.from = s.last + 1
		newest := map[string]uint64{}
		s.sweep()
		for _, m := range s.msgs {
			if len(c.filters) == 0 || matchesAny(m.subject, c.filters) {
				newest[m.subject] = m.sequence
			}
		}
		for _, sequence := range newest {
			c.only = append(c.only, sequence)
		}
		slices.Sort(c.only)
	default:
		s.broker.options.Unknown("a consumer's policy " + config.DeliverPolicy.String())
	}
	s.consumers[name] = c
	c.used()
	return c
}

// used postpones the removal of a consumer that is removed when unused.
func (c *consumer) used() {
	if c.config.InactiveThreshold == 0 {
		return
	}
	if c.unused != nil {
		c.unused.Stop()
	}
	b := c.of.broker
	c.unused = time.AfterFunc(c.config.InactiveThreshold, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		c.remove()
		delete(c.of.consumers, c.name)
	})
}

// remove stops the consumer's timers, and drops its waiting requests.
func (c *consumer) remove() {
	if c.unused != nil {
		c.unused.Stop()
	}
	for _, p := range c.waiting {
		p.stop()
	}
	for _, p := range c.pending {
		p.timer.Stop()
	}
	c.waiting = nil
}

// info returns the answer to a request for the consumer's state.
func (c *consumer) info() map[string]any {
	return map[string]any{
		"stream_name": c.of.config.Name, "name": c.name, "created": c.created, "config": c.config,
		"delivered":       map[string]any{"consumer_seq": c.delivered, "stream_seq": c.from - 1},
		"ack_floor":       map[string]any{"stream_seq": c.floor},
		"num_ack_pending": len(c.pending), "num_redelivered": len(c.given), "num_waiting": len(c.waiting),
		"num_pending": c.left(), "ts": time.Now(),
	}
}

// left counts the messages that it has not delivered yet.
func (c *consumer) left() (n int) {
	c.of.sweep()
	for _, m := range c.of.msgs {
		if slices.Contains(c.only, m.sequence) ||
			m.sequence >= c.from && (len(c.filters) == 0 || matchesAny(m.subject, c.filters)) {
			n++
		}
	}
	return n
}

// deliver sends available messages to the waiting requests, in turn.
func (c *consumer) deliver() {
	b := c.of.broker
	for {
		c.waiting = slices.DeleteFunc(c.waiting, func(p *pull) bool {
			gone := !b.interest(p.reply)
			if gone {
				p.stop()
			}
			return gone
		})
		if len(c.waiting) == 0 {
			return
		}
		m := c.next()
		if m == nil {
			break
		}
		p := c.waiting[0]
		c.waiting = append(c.waiting[1:], p)
		p.left, p.got = p.left-1, p.got+1
		if p.left == 0 {
			c.forget(p)
		}
		if p.beat != nil && p.left > 0 {
			p.beat.Reset(p.heartbeat)
		}
		c.give(m, p)
	}
	for _, p := range slices.Clone(c.waiting) {
		if p.noWait && (p.end == nil || p.got > 0) {
			c.forget(p)
			b.status(p.reply, 404, "No Messages", nil)
		}
	}
}

// next removes and returns the next message to deliver; nil if there is none.
func (c *consumer) next() *message {
	for len(c.again) > 0 {
		sequence := c.again[0]
		c.again = c.again[1:]
		if m := c.of.at(sequence); m != nil {
			return m
		}
		c.done(sequence)
	}
	if c.config.AckPolicy != jetstream.AckNonePolicy && c.config.MaxAckPending > 0 &&
		len(c.pending) >= c.config.MaxAckPending {
		return nil
	}
	for len(c.only) > 0 {
		sequence := c.only[0]
		c.only = c.only[1:]
		if m := c.of.at(sequence); m != nil {
			return m
		}
	}
	m := c.of.next(c.from, c.filters)
	if m != nil {
		c.from = m.sequence + 1
	}
	return m
}

// give delivers a message to a request.
func (c *consumer) give(m *message, to *pull) {
	c.delivered++
	c.given[m.sequence]++
	reply := fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.%d", c.of.config.Name, c.name, c.given[m.sequence],
		m.sequence, c.delivered, m.at.UnixNano(), c.left())
	b := c.of.broker
	fault := Fault{}
	if c.config.AckPolicy != jetstream.AckNonePolicy {
		if b.options.Fault != nil {
			fault = b.options.Fault(Event{
				Kind: KindDeliver, Subject: m.subject, Header: m.header, Data: m.data,
			})
		}
		c.await(m, fault.Again)
	} else {
		c.floor = m.sequence
	}
	header, data := m.header, m.data
	if c.config.HeadersOnly {
		header = nats.Header{"Nats-Msg-Size": {strconv.Itoa(len(data))}}
		maps.Copy(header, m.header)
		data = nil
	}
	if !fault.Lost {
		var head []byte
		if len(header) > 0 {
			head = encodeHeader(header)
		}
		// the client listens on the inbox of the request, and reads the subject of the message
		b.after(fault.Late, func() { b.writeAs(to.reply, m.subject, reply, head, data) })
	}
}

// await starts the wait for a message's acknowledgement. If again is positive, the wait ends after that
// time.
func (c *consumer) await(m *message, again time.Duration) {
	p := c.pending[m.sequence]
	if p == nil {
		p = &pending{subject: m.subject}
		p.timer = time.AfterFunc(c.config.AckWait, func() { c.expired(m.sequence, p) })
		c.pending[m.sequence] = p
	}
	p.number = c.delivered
	p.timer.Reset(c.config.AckWait)
	if again > 0 {
		p.timer.Reset(again)
	}
}

// expired redelivers an unacknowledged message.
func (c *consumer) expired(sequence uint64, p *pending) {
	b := c.of.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.of.consumers[c.name] == c && c.pending[sequence] == p && !slices.Contains(c.again, sequence) {
		c.again = append(c.again, sequence)
		p.timer.Reset(c.config.AckWait)
		c.deliver()
	}
}

// delivery returns the consumer and the pending message that an acknowledgement is about. The message is nil
// if it is no longer pending.
func (s *stream) delivery(subject string) (*consumer, *pending) {
	words := strings.Split(subject, ".")
	if s == nil || len(words) < 9 || s.consumers[words[3]] == nil {
		return nil, nil
	}
	c := s.consumers[words[3]]
	sequence, _ := strconv.ParseUint(words[5], 10, 64)
	return c, c.pending[sequence]
}

// acknowledge handles an acknowledgement of any kind.
func (b *Broker) acknowledge(m wireMsg, fault Fault) {
	words := strings.Split(m.subject, ".")
	c, p := b.streams[words[2]].delivery(m.subject)
	if p == nil {
		return
	}
	sequence, _ := strconv.ParseUint(words[5], 10, 64)
	switch {
	case len(m.data) == 0, bytes.Equal(m.data, []byte("+ACK")), bytes.HasPrefix(m.data, []byte("+TERM")):
		c.done(sequence)
	case bytes.Equal(m.data, []byte("+WPI")):
		p.timer.Reset(c.config.AckWait)
	case bytes.HasPrefix(m.data, []byte("-NAK")):
		var r struct {
			Delay time.Duration `json:"delay"`
		}
		if arg := bytes.TrimPrefix(m.data, []byte("-NAK")); len(arg) > 0 {
			if err := json.Unmarshal(arg, &r); err != nil {
				b.options.Unknown("a nak: " + err.Error())
			}
		}
		if r.Delay > 0 {
			c.again = slices.DeleteFunc(c.again, func(n uint64) bool { return n == sequence })
			p.timer.Reset(r.Delay)
		} else if !slices.Contains(c.again, sequence) {
			c.again = append(c.again, sequence)
		}
	default:
		b.options.Unknown(fmt.Sprintf("an acknowledgement %q", m.data))
	}
	b.answer(m.reply, fault, nil, nil)
	c.deliver()
}

// done records that a message is not delivered again.
func (c *consumer) done(sequence uint64) {
	if p := c.pending[sequence]; p != nil {
		p.timer.Stop()
	}
	delete(c.pending, sequence)
	delete(c.given, sequence)
	c.again = slices.DeleteFunc(c.again, func(n uint64) bool { return n == sequence })
	c.floor = c.from - 1
	for open := range c.pending {
		c.floor = min(c.floor, open-1)
	}
}
