// Package devtunnel brings callbacks of test sessions to a developer's own machine, which has no public
// address: from the dispatcher that sends them to the edge that the developer's program listens at. The two
// meet on subjects of NATS, and nothing is stored.
//
//	listen.<key>               "does somebody listen?", answered with the name of one who does
//	listen.<key>.<listener>    a callback, handed over
//	listened.<key>.<exchange>  how that ended, from whichever edge the developer's program told it
//
// The laws:
//
//   - "No responders" is the NATS server's own statement that no subscriber got a message. Only that means
//     that nothing was sent; any other failure after a callback was handed over leaves open whether it
//     arrived.
//   - Everything is below the id of one API key. The holder of another key neither gets its callbacks nor
//     answers for them.
//   - A listener is a hint, a claim is a fact: the process that hands a callback over has claimed the attempt
//     before.
package devtunnel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
)

const (
	// askWait bounds the question whether somebody listens. It is answered by an edge, not by a developer's
	// machine.
	askWait = 2 * time.Second
	// waiting is how many callbacks may wait at one listener. They are a developer's own; any more would not
	// be handed over in time.
	waiting = 256
	// nameLen is the length of what rand.Text makes.
	nameLen = 26
	// queue makes one of several listeners of a key answer.
	queue = "listeners"
)

// The errors of this package.
var (
	// ErrNoListener: nobody listens, and nothing was sent.
	ErrNoListener = errors.New("nobody listens")
	// ErrOver: nothing waits for this answer any more, or it was given already.
	ErrOver = errors.New("this exchange is over")
)

// Callback is a callback as it goes to a listener.
type Callback struct {
	Exchange string            `json:"id"` // names this handing over; the answer carries it
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
}

// Answer is how a callback ended at the developer's machine.
type Answer struct {
	Sent   bool   `json:"sent"`   // the request may have reached the program; false: provably not
	Status int    `json:"status"` // the program's final HTTP status; 0 if none came
	Detail string `json:"detail"` // what went wrong, in one sentence; empty if Status is set
	Body   string `json:"body"`   // the beginning of the program's answer
}

// Relay is either end. It is safe for concurrent use, and owns nothing that must be closed.
type Relay struct{ conn *natsconf.Conn }

// New returns a relay on a connection.
func New(conn *natsconf.Conn) *Relay { return &Relay{conn: conn} }

func askSubject(key string) string              { return "listen." + key }
func handSubject(key, listener string) string   { return "listen." + key + "." + listener }
func answerSubject(key, exchange string) string { return "listened." + key + "." + exchange }

// Find asks whether somebody listens for a key, and returns the listener. It sends nothing of a callback. The
// error is ErrNoListener, or reports that the question was not answered: then it may be asked again.
func (r *Relay) Find(ctx context.Context, key string) (listener string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	m, err := r.conn.NC.RequestWithContext(ctx, askSubject(key), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return "", ErrNoListener
	case err != nil:
		return "", fmt.Errorf("ask for a listener: %w: %w", natsconf.ErrUnavailable, err)
	case !isName(string(m.Data)):
		return "", fmt.Errorf("ask for a listener: %w: the answer is no name", natsconf.ErrUnavailable)
	}
	return string(m.Data), nil
}

// Hand hands a callback over and waits for how it ended, until ctx ends. With ErrNoListener nothing was sent;
// after any other error it may have been. It is called once for a claim, and hands over once.
func (r *Relay) Hand(ctx context.Context, key, listener string, c Callback) (Answer, error) {
	c.Exchange = rand.Text()
	data, err := json.Marshal(c)
	if err != nil {
		return Answer{}, fmt.Errorf("encode callback: %w", err)
	}
	reply, err := r.conn.NC.SubscribeSync(answerSubject(key, c.Exchange))
	if err != nil {
		return Answer{}, ErrNoListener // nothing was sent, and nothing could be heard
	}
	defer func() { _ = reply.Unsubscribe() }()
	if err := r.conn.NC.PublishMsg(&nats.Msg{
		Subject: handSubject(key, listener), Reply: reply.Subject, Data: data,
	}); err != nil {
		return Answer{}, fmt.Errorf("hand over: %w", err)
	}
	m, err := reply.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Answer{}, ErrNoListener
	case err != nil:
		return Answer{}, fmt.Errorf("wait for the listener: %w", err)
	}
	_ = m.Respond(nil) // the answer was in time, and its sender learns that
	var a Answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Answer{}, fmt.Errorf("decode the listener's answer: %w", err)
	}
	return a, nil
}

// Answer reports to the process that handed a callback over how it ended. The error is ErrOver, which a
// repeat returns too, or natsconf.ErrUnavailable.
func (r *Relay) Answer(ctx context.Context, key, exchange string, a Answer) error {
	if !isName(exchange) {
		return ErrOver // and no subject of anybody else's
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = r.conn.NC.RequestWithContext(ctx, answerSubject(key, exchange), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrOver
	case err != nil:
		return fmt.Errorf("answer: %w: %w", natsconf.ErrUnavailable, err)
	}
	return nil
}

// isName recognizes a name that rand.Text made: it is one token of a subject.
func isName(s string) bool {
	return len(s) == nameLen && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// Post is a listener's place at an edge, from Open to Close.
type Post struct {
	relay *Relay
	key   string

	asked, handed *nats.Subscription
	callbacks     chan *nats.Msg
	close         sync.Once
}

// Open makes a place for a listener of a key: callbacks come from its return on. The error is
// natsconf.ErrUnavailable.
func (r *Relay) Open(key string) (*Post, error) {
	p := &Post{relay: r, key: key, callbacks: make(chan *nats.Msg, waiting)}
	name := rand.Text()
	var err error
	if p.handed, err = r.conn.NC.ChanSubscribe(handSubject(key, name), p.callbacks); err == nil {
		p.asked, err = r.conn.NC.QueueSubscribe(askSubject(key), queue, func(m *nats.Msg) {
			_ = m.Respond([]byte(name))
		})
	}
	if err == nil {
		err = r.conn.NC.FlushTimeout(askWait) // the server knows both by then
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("listen: %w: %w", natsconf.ErrUnavailable, err)
	}
	return p, nil
}

// Callbacks returns the callbacks that are handed over, to be read with Read.
func (p *Post) Callbacks() <-chan *nats.Msg { return p.callbacks }

// Read decodes a callback.
func (*Post) Read(m *nats.Msg) (Callback, error) {
	var c Callback
	if err := json.Unmarshal(m.Data, &c); err != nil {
		return c, fmt.Errorf("decode callback: %w", err)
	}
	return c, nil
}

// Close ends the place, and reports every callback that was not read as not sent. A repeat is harmless.
func (p *Post) Close() {
	p.close.Do(func() {
		for _, s := range []*nats.Subscription{p.asked, p.handed} {
			if s != nil {
				_ = s.Unsubscribe()
			}
		}
		gone, err := json.Marshal(Answer{Detail: "the listener went away"})
		for err == nil {
			select {
			case m := <-p.callbacks:
				_ = m.Respond(gone)
			default:
				return
			}
		}
	})
}
