package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxLineBytes is more than a line of the service's can take: a callback's headers and body, escaped.
	maxLineBytes = 256 << 10
	// defaultBeat is taken where the service names none.
	defaultBeat = 15 * time.Second
	// answerTimeout bounds the report that a callback has ended.
	answerTimeout = 10 * time.Second
)

// ErrListenEnded says that the service ended the listening in good order, since it stops or starts again:
// listen again.
var ErrListenEnded = errors.New("the service ended the listening; listen again")

var errSilent = errors.New("nothing was heard for too long")

// Listened is a callback that came to a listener instead of to its callback_url.
type Listened struct {
	Header http.Header // as the receiver would get it, signature included
	Body   []byte

	client   *Client
	exchange string
}

// Outcome is how a Listened ended.
type Outcome struct {
	// it may have reached the program; false: provably not, and it comes again later
	Sent   bool   `json:"sent"`
	Status int    `json:"status"` // the program's final HTTP status; 0 if none came
	Detail string `json:"detail"` // what went wrong, if there is no status
	Body   string `json:"body"`   // the beginning of the program's answer, for people
}

// Answer reports to the service how the callback ended. It has the service's VERIFYD_CALLBACK_TIMEOUT for it,
// 10 seconds by default; what comes later is refused with CodeExchangeOver, and the attempt remains unknown.
// A repeat is harmless, and it is tried again while no answer comes: a callback whose end is not reported is
// unknown.
func (l Listened) Answer(ctx context.Context, o Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return l.client.service.Create(ctx, "/listen/"+l.exchange, l.exchange, o, nil)
}

// Listen gets the callbacks of the test key's sessions, for as long as it runs; they do not go to their
// callback_url meanwhile. ready is called once listening has begun, and handle in a goroutine of its own for
// each callback; Listen returns when all of them have.
//
// It is one connection: it returns ErrListenEnded, a *NoAnswer when the connection broke, an *Error when the
// service refuses (a live key gets CodeLiveKey), or ctx's error. A repeat is harmless.
func (c *Client) Listen(ctx context.Context, ready func(), handle func(context.Context, Listened)) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// a connection without a beat is dead, whatever TCP says
	alive := time.AfterFunc(2*defaultBeat, func() { cancel(errSilent) })
	defer alive.Stop()
	response, err := c.service.Open(inner, http.MethodPost, "/listen")
	if err != nil {
		if silent := context.Cause(inner); silent != nil {
			err = &NoAnswer{Err: silent}
		}
		return cause(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	beat := defaultBeat
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		var line struct {
			Type    string            `json:"type"`
			Beat    int               `json:"beat"`
			ID      string            `json:"id"`
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return &NoAnswer{Err: fmt.Errorf("not the lines that were expected: %w", err)}
		}
		switch line.Type {
		case "ready":
			if line.Beat > 0 {
				beat = time.Duration(line.Beat) * time.Second
			}
			ready()
		case "callback":
			l := Listened{Header: http.Header{}, Body: []byte(line.Body), client: c, exchange: line.ID}
			for name, value := range line.Headers {
				l.Header.Set(name, value)
			}
			wg.Go(func() { handle(context.WithoutCancel(ctx), l) })
		case "bye":
			return ErrListenEnded
		}
		alive.Reset(2*beat + beat/2)
	}
	err = lines.Err()
	switch {
	case context.Cause(inner) != nil:
		err = context.Cause(inner)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return cause(ctx, &NoAnswer{Err: err})
}

// cause prefers the caller's own end to what it looked like from here.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
