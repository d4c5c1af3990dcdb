package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/history"
	"verifyd/edge/problem"
)

// promised is the time within which a revoked key is refused (docs/GUARANTEES.md).
const promised = time.Second

// witness is an integrator whose calls are recorded, and judged by a checker: sessions that several of its
// servers start, read, cancel and confirm at once while the user signs in, an account's quota, and keys that
// are revoked.
type witness struct {
	base, key string
	receiver  string // a callback URL
	log       *history.Log

	quotaKey string // of an account with the quota
	quota    int64
	revoked  []string               // keys to be revoked, one at a time
	revoke   func(key string) error // tells that it is done
	within   time.Duration          // how late a revoked key may be accepted: promised at least

	sessions int           // that it starts; 0: until it is told to stop
	every    time.Duration // how long it rests between two

	begun atomic.Int64 // sessions
}

// witness returns one of the same integrator, in addition to the crowd, which records in the same log. Its
// sessions are few, and end before the crowd's.
func (c *crowd) witness() *witness {
	return &witness{
		base: c.base, key: c.key, receiver: c.counter.url + witnessPath, log: c.log, quota: 60,
		within: promised,
		every:  500 * time.Millisecond,
	}
}

// meter creates an account and keys for a witness; command runs a command of verifyd.
func (w *witness) meter(t *testing.T, keys int, command func(args ...string) (string, error)) {
	t.Helper()
	const metered = "Metered Guild"
	must[string](t)(command("account", "create", metered))
	must[string](t)(command("account", "quota", metered, strconv.FormatInt(w.quota, 10)))
	for range keys + 1 {
		key := strings.TrimSpace(must[string](t)(command("key", "create", "--account", metered)))
		api{base: w.base, key: key}.knownSoon(t)
		w.revoked = append(w.revoked, key)
	}
	w.quotaKey, w.revoked = w.revoked[0], w.revoked[1:]
	w.revoke = func(key string) error {
		_, err := command("key", "revoke", key)
		return err
	}
}

// witnesses is how many sessions a witness runs concurrently.
const witnesses = 4

// walk runs until ctx ends, or all sessions have ended and the rest is done, too. Then every session was
// read.
func (w *witness) walk(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.spend(ctx) })
	wg.Go(func() {
		for i, key := range w.revoked {
			w.useKey(ctx, w.log.Key(strconv.Itoa(i+1), w.within), key)
		}
	})
	for range witnesses {
		wg.Go(func() {
			for i := int(w.begun.Add(1)); w.sessions == 0 || i <= w.sessions; i = int(w.begun.Add(1)) {
				w.session(ctx, i)
				if !pass(ctx, w.every) {
					return
				}
			}
		})
	}
}

// ask makes a request; the status is 0 if no answer came, or one that does not show the result.
func (w *witness) ask(key, method, path, body string, header ...string) (status int, answer answered) {
	q, err := http.NewRequest(method, w.base+path, strings.NewReader(body))
	if err != nil {
		return 0, answer
	}
	q.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: demo.BrowserTimeout}
	r, err := client.Do(q)
	if err != nil {
		return 0, answer
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode >= http.StatusInternalServerError || json.Unmarshal(b, &answer) != nil {
		return 0, answer
	}
	return r.StatusCode, answer
}

// answered is the part of answers that is checked.
type answered struct {
	demo.Started

	State string       `json:"state"`
	Used  int64        `json:"used"`
	Code  problem.Code `json:"code"`
}

// session runs one session: it is started until that is acknowledged, and then several callers use it
// concurrently.
func (w *witness) session(ctx context.Context, i int) {
	name := fmt.Sprintf("witness-%d", i)
	p := w.log.Session(name)
	body := fmt.Sprintf(`{"platform":"p","platform_user_id":%q,"callback_url":%q}`, name, w.receiver)
	coded := i%4 == 3
	if coded {
		body = strings.Replace(body, "{", `{"binding":"code",`, 1)
	}
	start := func() (s demo.Started, ok bool) {
		c := p.Start()
		switch status, a := w.ask(w.key, http.MethodPost, "/verify/init", body, "Idempotency-Key",
			name); status {
		case 0:
			return s, false
		case http.StatusOK:
			c.Saw(a.ID())
			return a.Started, true
		default:
			c.Nothing()
			return s, false
		}
	}
	s, ok := start()
	for ; !ok; s, ok = start() {
		if !pass(ctx, patience()) {
			return
		}
	}
	p.Expires(s.ExpiresAt)
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		for !w.look(p, s.Session) && pass(context.WithoutCancel(ctx), patience()) {
		}
	}()
	wg.Go(func() { _, _ = start() })
	for range 2 {
		wg.Go(func() {
			for range 3 {
				w.look(p, s.Session)
				pass(ctx, patience()/4)
			}
		})
	}
	if i%3 == 0 {
		wg.Go(func() {
			pass(ctx, patience()/2)
			w.cancel(p, s.Session)
		})
	}
	wg.Go(func() { w.user(ctx, p, s, name, coded) })
}

// look reads a session, and reports whether it got an answer.
func (w *witness) look(p *history.Part, session string) (told bool) {
	c := p.Read()
	switch status, a := w.ask(w.key, http.MethodGet, "/sessions/"+session, ""); {
	case status == http.StatusOK:
		c.Saw(a.State)
		return true
	case status == http.StatusNotFound && a.Code == problem.CodeSessionNotFound:
		c.Saw("")
		return true
	default:
		return false
	}
}

func (w *witness) cancel(p *history.Part, session string) {
	c := p.End("canceled")
	switch status, a := w.ask(w.key, http.MethodPost, "/sessions/"+session+"/cancel", ""); {
	case status == http.StatusOK:
		c.Saw(a.State)
	case a.Code == problem.CodeSessionCompleted && status != 0:
		c.Saw(history.Other)
	case a.Code == problem.CodeSessionExpired && status != 0:
		c.Saw("expired")
	case a.Code == problem.CodeSessionNotFound && status != 0:
		c.Saw("")
	}
}

// user signs in, and passes the code, if there is one, to the integrator.
func (w *witness) user(ctx context.Context, p *history.Part, s demo.Started, name string, coded bool) {
	b := demo.NewBrowser()
	for range 4 {
		var c *history.Call
		if !coded {
			c = p.End("verified")
		}
		at, err := b.Open(ctx, s.VerifyURL)
		for _, button := range []string{"default", "sign-in"} {
			if err != nil || at.Status != http.StatusOK || at.Title() == "You are verified" ||
				at.Code() != "" {
				break
			}
			at, err = b.Press(ctx, at, button)
		}
		if err == nil && at.Status == http.StatusOK && at.Title() == "You are verified" {
			c.Saw("verified")
			return
		}
		if coded && err == nil && at.Code() != "" && w.confirm(p, s.Session, name, at.Code()) {
			return
		}
		if !pass(ctx, patience()) {
			return
		}
	}
}

// confirm reports whether the integrator learned how the session has ended.
func (w *witness) confirm(p *history.Part, session, user, code string) bool {
	c := p.End("verified")
	status, a := w.ask(w.key, http.MethodPost, "/sessions/"+session+"/confirm",
		fmt.Sprintf(`{"platform_user_id":%q,"code":%q}`, user, code))
	switch status {
	case http.StatusOK:
		c.Saw(a.State)
		return true
	case 0:
		return false
	default:
		c.Nothing()
		return status == http.StatusConflict
	}
}

// spend starts sessions of an account with a quota until that is used up, and reads how much of it is used.
func (w *witness) spend(ctx context.Context) {
	p := w.log.Quota("the metered account", w.quota)
	body := fmt.Sprintf(`{"platform":"p","platform_user_id":"u","callback_url":%q}`, w.receiver)
	for i, refused := 0, 0; refused < 3 && pass(ctx, w.every); i++ {
		c := p.Take()
		switch status, a := w.ask(w.quotaKey, http.MethodPost, "/verify/init", body); {
		case status == http.StatusOK:
			c.Saw(history.Taken)
		case status == http.StatusTooManyRequests && a.Code == problem.CodeQuotaExceeded:
			c.Saw(history.Refused)
			refused++
		case status != 0:
			c.Nothing()
		}
		c = p.Count()
		if status, a := w.ask(w.quotaKey, http.MethodGet, "/usage", ""); status == http.StatusOK {
			c.Counted(a.Used)
		}
		if int64(i) > 2*w.quota {
			return // it has no end
		}
	}
}

// useKey uses a key, revokes it meanwhile, and continues until it was refused some times, or should have
// been.
func (w *witness) useKey(ctx context.Context, p *history.Part, key string) {
	done := make(chan struct{})
	defer func() { <-done }()
	use := func() (refused bool) {
		c := p.Use()
		switch status, a := w.ask(key, http.MethodGet, "/sessions/"+strings.Repeat("a", 32), ""); {
		case status == http.StatusNotFound && a.Code == problem.CodeSessionNotFound:
			c.Saw(history.Taken)
		case status == http.StatusUnauthorized:
			c.Saw(history.Refused)
			return true
		}
		return false
	}
	use()
	go func() {
		defer close(done)
		c := p.Revoke()
		if w.revoke(key) == nil {
			c.Saw(history.Taken)
		}
	}()
	for refused, left := 0, 3; refused < 3 && left > 0 && pass(ctx, w.every/4); {
		if use() {
			refused++
		}
		select {
		case <-done:
			if pass(ctx, w.within); !use() {
				left--
			}
		default:
		}
	}
}

// judge fails the test if what was seen is not what one store without faults could have answered.
func (w *witness) judge(t *testing.T) {
	t.Helper()
	w.log.Check(t, os.TempDir())
}
