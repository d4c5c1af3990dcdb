package simtest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// New returns a broker without streams.
func New(o Options) *Broker {
	return &Broker{
		options: o, streams: map[string]*stream{}, leaderless: map[string]time.Time{},
	}
}

// Endpoint returns a new endpoint for one process.
func (b *Broker) Endpoint(name string) *Endpoint {
	return &Endpoint{broker: b, name: name, never: make(chan struct{})}
}

// Credential returns any credential: the broker accepts all.
func (e *Endpoint) Credential() (user, password string) { return e.name, "simulated" }

// Failure returns nil: if the broker fails, it does not answer.
func (e *Endpoint) Failure() error { return nil }

// Failed returns a channel that is never closed.
func (e *Endpoint) Failed() <-chan struct{} { return e.never }

// Abandoned returns a channel that is never closed.
func (e *Endpoint) Abandoned() <-chan struct{} { return e.never }

// Damaged returns nil: nothing of it is ever lost.
func (e *Endpoint) Damaged(string) error { return nil }

// WentBack does nothing.
func (e *Endpoint) WentBack(string, uint64) {}

var errDown = errors.New("connection refused: the simulated broker is down")

// InProcessConn opens a connection to the broker.
func (e *Endpoint) InProcessConn() (net.Conn, error) {
	b := e.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.gone || time.Now().Before(b.down) {
		return nil, errDown
	}
	near, far := Pipe(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40000}, &net.TCPAddr{
		IP: net.IPv4(10, 0, 0, 2), Port: 4222,
	})
	b.numbered++
	c := &client{broker: b, of: e, conn: far}
	b.clients = append(b.clients, c)
	_, _ = fmt.Fprintf(far, `INFO {"server_id":"SIM","server_name":"simulated","version":"2.12.1","proto":1,`+
		`"headers":true,"max_payload":1048576,"jetstream":true,"client_id":%d}`+"\r\n", b.numbered)
	go c.serve()
	return near, nil
}

// Cut cuts the endpoint's connections. New ones can be opened.
func (e *Endpoint) Cut() {
	e.broker.mu.Lock()
	defer e.broker.mu.Unlock()
	e.broker.cut(func(c *client) bool { return c.of == e })
}

// Kill cuts the endpoint's connections permanently: nothing that its process still does reaches the broker.
func (e *Endpoint) Kill() {
	e.broker.mu.Lock()
	defer e.broker.mu.Unlock()
	e.gone = true
	e.broker.cut(func(c *client) bool { return c.of == e })
}

// cut ends the connections of some clients. The lock is held.
func (b *Broker) cut(whose func(*client) bool) {
	b.clients = slices.DeleteFunc(b.clients, func(c *client) bool {
		if !whose(c) {
			return false
		}
		c.conn.Reset()
		return true
	})
}

// Restart ends all connections, and refuses new ones for a while. State that is only in memory is lost.
func (b *Broker) Restart(down time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = time.Now().Add(down)
	b.cut(func(*client) bool { return true })
	for _, s := range b.streams {
		s.staged = map[string][]*message{}
		for _, c := range s.inOrder() {
			c.waiting = nil
			if c.config.MemoryStorage {
				c.remove()
				delete(s.consumers, c.name)
			}
		}
	}
}

// Leaderless leaves a stream without a leader for a while: its requests get "no responders", and the waiting
// requests of its consumers "Leadership Change". No acknowledged message is lost by that, and none that was
// not stored appears.
func (b *Broker) Leaderless(name string, lasting time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaderless[name] = time.Now().Add(lasting)
	if s := b.streams[name]; s != nil {
		s.staged = map[string][]*message{}
		for _, c := range s.inOrder() {
			for _, p := range c.waiting {
				b.status(p.reply, 409, "Leadership Change", nil)
			}
			c.waiting = nil
		}
	}
}

// receive handles a client's message, subject to its fault.
func (b *Broker) receive(c *client, m wireMsg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.clients, c) {
		return
	}
	kind, s := b.kindOf(m)
	if kind == "" {
		b.core(m)
		return
	}
	fault := b.faultOf(kind, s, c.of.name, m)
	if s != nil && kind != KindAck && time.Now().Before(b.leaderless[s.config.Name]) {
		fault.NoResponders = true
	}
	do := func() {
		switch kind {
		case KindPublish:
			s.publish(m, fault)
			b.send(m.subject, m.reply, m.header, m.data) // to those who listen
		case KindAck:
			b.acknowledge(m, fault)
		default:
			b.request(m, fault)
		}
	}
	switch {
	case fault.Lost:
	case fault.NoResponders:
		b.status(m.reply, 503, "", nil)
	default:
		b.after(fault.Late, do)
	}
}

// after calls do now, or later with the lock held.
func (b *Broker) after(late time.Duration, do func()) {
	if late <= 0 {
		do()
		return
	}
	time.AfterFunc(late, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		do()
	})
}

// kindOf returns the kind of a message, and the stream that it is about. The kind is empty for messages
// between clients.
func (b *Broker) kindOf(m wireMsg) (Kind, *stream) {
	words := strings.Split(m.subject, ".")
	switch {
	case strings.HasPrefix(m.subject, "$JS.ACK.") && len(words) > 2:
		return KindAck, b.streams[words[2]]
	case strings.HasPrefix(m.subject, "$JS.API.DIRECT.GET.") && len(words) > 4:
		return KindRead, b.streams[words[4]]
	case strings.HasPrefix(m.subject, "$JS.API.STREAM.MSG.GET.") && len(words) > 5:
		return KindRead, b.streams[words[5]]
	case strings.HasPrefix(m.subject, "$JS.API.CONSUMER.MSG.NEXT.") && len(words) > 5:
		return KindAPI, b.streams[words[5]]
	case strings.HasPrefix(m.subject, "$JS.API.") && len(words) > 4:
		return KindAPI, b.streams[words[4]]
	case strings.HasPrefix(m.subject, "$JS.API."):
		return KindAPI, nil
	}
	for _, s := range b.streams {
		if matchesAny(m.subject, s.config.Subjects) {
			return KindPublish, s
		}
	}
	return "", nil
}

func (b *Broker) faultOf(kind Kind, s *stream, client string, m wireMsg) Fault {
	// of a batch only the commit can be lost or late by itself: a connection keeps the order
	if b.options.Fault == nil || m.header.Get(batchID) != "" && m.header.Get(batchCommit) == "" {
		return Fault{}
	}
	e := Event{Kind: kind, Subject: m.subject, Header: m.header, Data: m.data, Client: client}
	if kind == KindAck {
		if _, p := s.delivery(m.subject); p != nil {
			e.Subject = p.subject
		}
	}
	return b.options.Fault(e)
}

// core passes on a message that is not for a stream.
func (b *Broker) core(m wireMsg) {
	if !b.send(m.subject, m.reply, m.header, m.data) && m.reply != "" {
		b.status(m.reply, 503, "", nil)
	}
}

// answer sends an answer, subject to the fault of its request.
func (b *Broker) answer(reply string, fault Fault, header nats.Header, data []byte) {
	if reply == "" || fault.Unanswered {
		return
	}
	b.after(fault.AnswerLate, func() { b.send(reply, "", header, data) })
}
