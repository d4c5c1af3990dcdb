package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"verifyd/edge/account"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/devtunnel"
)

const (
	// listenBeat is how often a listener receives a line, so that proxies keep the answer open and a dead
	// connection is noticed.
	listenBeat = 15 * time.Second
	// listenWrite bounds the write of one line into the connection.
	listenWrite = 10 * time.Second
	// retryListeners is the Retry-After of one beyond the bound.
	retryListeners = 10 * time.Second
	// maxAnswerBytes bounds the detail and the body of an answer that are kept.
	maxAnswerBytes = 1 << 10
)

// Listeners is where callbacks for developers' own machines come in; a *devtunnel.Relay.
type Listeners interface {
	Open(key string) (*devtunnel.Post, error)
	Answer(ctx context.Context, key, exchange string, a devtunnel.Answer) error
}

// listenLine is one line of the answer to POST /listen.
type listenLine struct {
	Type string `json:"type"`          // "ready", "callback", "beat" or "bye"
	Beat int    `json:"beat,omitzero"` // with ready: the seconds between two lines, at most
	*devtunnel.Callback
}

// listenAnswer is the body of POST /listen/{exchange}.
type listenAnswer struct {
	Sent   bool   `json:"sent"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Body   string `json:"body"`
}

// acquireListener takes a place for a listener; if there is none, it returns why.
func acquireListener(of *places.Places, who account.Principal) (release func(), full *problem.Problem) {
	release, err := of.Acquire(places.Request{Of: who.Account.Owner(), Part: who.Key.ID})
	if err == nil {
		return release, nil
	}
	detail := "There are too many listeners here just now, across all accounts."
	switch share, ok := errors.AsType[*places.ShareError](err); {
	case ok && share.Of == who.Key.ID:
		detail = fmt.Sprintf("At most %d can listen with one key.", share.Max)
	case ok:
		detail = fmt.Sprintf("At most %d can listen with the keys of one owner's accounts.", share.Max)
	}
	return nil,
		&problem.Problem{Code: problem.CodeTooManyListeners, Detail: detail, RetryAfter: retryListeners}
}

// POST /listen returns the callbacks of a test key's sessions, for as long as the answer is read: one JSON
// object a line. They do not go to their receivers meanwhile.
func (a *api) listen(w http.ResponseWriter, r *http.Request) {
	who, p := a.authorizeTest(r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	release, p := acquireListener(a.listening, who)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	defer release()
	post, err := a.Listeners.Open(who.Key.ID)
	if err != nil {
		web.WriteProblem(w, r, storeProblem(err))
		return
	}
	defer post.Close()
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold lines back otherwise
	l := &listening{api: a, w: w, control: http.NewResponseController(w), key: who.Key.ID}
	l.run(r, post)
}

// authorizeTest finds out whose request it is, and refuses live keys.
func (g *guard) authorizeTest(r *http.Request) (who account.Principal, p *problem.Problem) {
	who, p = g.authorize(r)
	if p == nil && !who.Key.Test {
		p = &problem.Problem{
			Code: problem.CodeLiveKey, Detail: "Only test keys (vfytest_…) can listen: the " +
				"results of live keys go only to their receivers.",
		}
	}
	return who, p
}

// listening is one listener's answer.
type listening struct {
	*api
	w       http.ResponseWriter
	control *http.ResponseController
	key     string
}

func (l *listening) run(r *http.Request, post *devtunnel.Post) {
	beat := time.NewTicker(l.ListenBeat)
	defer beat.Stop()
	if !l.say(listenLine{Type: "ready", Beat: int(l.ListenBeat / time.Second)}) {
		return
	}
	for {
		select {
		case m := <-post.Callbacks():
			if !l.pass(r, post, m) {
				return
			}
		case <-beat.C:
			if !l.stillMay(r) || !l.say(listenLine{Type: "beat"}) {
				return
			}
		case <-web.Draining(r.Context()):
			l.say(listenLine{Type: "bye"})
			return
		case <-r.Context().Done():
			return
		}
	}
}

// stillMay reports whether the key is still valid: it may be revoked while its holder listens.
func (l *listening) stillMay(r *http.Request) bool {
	_, p := l.authorizeTest(r)
	return p == nil
}

// pass brings one callback to the listener. If the line cannot be written whole, part of it may have arrived.
func (l *listening) pass(r *http.Request, post *devtunnel.Post, m *nats.Msg) bool {
	c, err := post.Read(m)
	switch {
	case err != nil:
		l.Log.Error().Err(err).Msg("a callback for a listener cannot be read")
		return true
	case r.Context().Err() != nil: // it left while the callback came
		l.fail(r.Context(), c, devtunnel.Answer{Detail: "the listener went away"})
		return false
	case !l.stillMay(r):
		l.fail(r.Context(), c, devtunnel.Answer{Detail: "the listener's key is not valid any more"})
		return false
	case !l.say(listenLine{Type: "callback", Callback: &c}):
		l.fail(r.Context(), c, devtunnel.Answer{Sent: true, Detail: "the connection to the listener broke"})
		return false
	}
	return true
}

// fail answers for a listener that cannot answer.
func (l *listening) fail(ctx context.Context, c devtunnel.Callback, a devtunnel.Answer) {
	// the listener is gone, but not the caller that waits for its answer
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Store.Within())
	defer cancel()
	if err := l.Listeners.Answer(ctx, l.key, c.Exchange, a); err != nil {
		l.Log.Warn().Err(err).Msg("the end of a listener could not be reported")
	}
}

// say writes a line and flushes it.
func (l *listening) say(line listenLine) bool {
	data, err := json.Marshal(line)
	if err != nil {
		return false
	}
	// The server's own write time-out is for answers that come at once. If it cannot be moved, the server
	// cuts this one off.
	_ = l.control.SetWriteDeadline(time.Now().Add(listenWrite))
	if _, err := l.w.Write(append(data, '\n')); err != nil {
		return false
	}
	return l.control.Flush() == nil
}

// POST /listen/{exchange} reports how a callback ended at the developer's machine: 204, or 404 if no caller
// waits for it any more.
func (a *api) answerListen(w http.ResponseWriter, r *http.Request) {
	if p := a.listenResult(r); p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) listenResult(r *http.Request) *problem.Problem {
	who, p := a.authorizeTest(r)
	if p != nil {
		return p
	}
	var doc listenAnswer
	if err := json.UnmarshalRead(r.Body, &doc); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &problem.Problem{
				Code: problem.CodeBodyTooLarge, Detail: fmt.Sprintf("The body is larger than %d bytes.",
					web.MaxBodyBytes),
			}
		}
		return &problem.Problem{
			Code:   problem.CodeInvalidRequest,
			Detail: "The body is not a JSON object with sent, status, detail and body.",
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.Store.Within())
	defer cancel()
	err := a.Listeners.Answer(ctx, who.Key.ID, r.PathValue("exchange"), devtunnel.Answer{
		Sent: doc.Sent, Status: doc.Status,
		Detail: doc.Detail[:min(len(doc.Detail), maxAnswerBytes)],
		Body:   doc.Body[:min(len(doc.Body), maxAnswerBytes)],
	})
	switch {
	case errors.Is(err, devtunnel.ErrOver):
		return &problem.Problem{
			Code:   problem.CodeExchangeOver,
			Detail: "Nobody waits for this answer: it came too late, or was already given.",
		}
	case err != nil:
		return storeProblem(err)
	}
	return nil
}
