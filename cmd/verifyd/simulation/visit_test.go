package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"verifyd/edge/flow"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// page is the address of the session's page.
func (s *session) page() string { return "/?session=" + s.token.Reveal() }

// browser returns a new browser of a user.
func (s *session) browser(edges []*worker, name string) *browser {
	b := &browser{s: s, w: s.w, name: name, edges: edges, cookies: map[string]string{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.browsers = append(s.browsers, b)
	return b
}

// visit plays a user with a browser, who returns a few times.
func (s *session) visit(ctx context.Context, edges []*worker, number int) {
	b := s.browser(edges, fmt.Sprint(s.name, "b", number))
	for range 4 {
		if b.look(ctx) {
			return
		}
		pause := time.Duration(s.w.draw("pause of %s", b.name).IntN(2000)) * time.Millisecond
		time.Sleep(pause) // in virtual time
	}
}

// endCalmly makes the user of a session that is still open return once more after all faults, with each
// browser in turn. Then the session must end, unless its code is in a browser that lost the cookie that
// identifies it.
func (s *session) endCalmly(ctx context.Context, by *process, edges []*worker) {
	const enough = 5 * time.Minute // for another browser's lease, and for requests in flight
	if !s.pages || s.started == nil || time.Until(s.started.ExpiresAt) < enough {
		return
	}
	if v, err := by.store.Read(ctx, s.started.ID); err != nil || v.State != sessions.Pending {
		return // judge reports a session that cannot be read
	}
	s.w.counts("comes once more", "%s comes once more", s.name)
	s.browser(edges, s.name+"b-last")
	how := s.w.draw("how %s comes once more", s.name).IntN(3)
	for _, b := range s.browsers {
		b.hurried, b.shown = how == 0, how == 1
	}
	for time.Until(s.started.ExpiresAt) > time.Minute {
		for _, b := range s.browsers {
			if b.look(ctx) {
				return
			}
		}
		if s.started.Level == proof.Code && slices.ContainsFunc(s.browsers, (*browser).hasForgotten) {
			return
		}
		time.Sleep(time.Minute) // in virtual time; half of a lease
	}
	s.w.fail("%s cannot be ended after all faults", s.name)
}

// look opens the page and does what it asks for. It reports whether the session has ended, as far as the
// user is told.
func (b *browser) look(ctx context.Context) (over bool) {
	a, ok := b.send(ctx, "look", b.s.page(), nil, nil, nil)
	switch {
	case !ok:
		return false
	case a.title == pageAsk:
		return b.begin(ctx)
	case a.title == pageConfirm:
		return b.submitCode(ctx, a.code())
	}
	return a.over()
}

// over reports whether a page says that the session has ended.
func (a answer) over() bool {
	state := pageStates[a.title]
	return state != "" && state != sessions.Pending
}

// submitCode makes the integrator submit the code that the page shows, or a wrong one.
func (b *browser) submitCode(ctx context.Context, code string) (over bool) {
	r := b.w.draw("code of %s", b.name)
	if b.w.odd(r, "wrong code") {
		code = "000000"
	}
	e := b.edges[r.IntN(len(b.edges))]
	b.s.repeat(e, func() error { return b.s.confirm(e, code) })
	return false // the page says so
}

// begin presses one or two of the page's buttons: two in two tabs, at the same time.
func (b *browser) begin(ctx context.Context) (over bool) {
	r := b.w.draw("press of %s", b.name)
	network := networks[r.IntN(len(networks))]
	switch {
	case b.w.odd(r, "declined on the page"):
		a, _ := b.press(ctx, "decline", network)
		return b.follow(ctx, a)
	case b.w.odd(r, "two tabs"):
		var tabs sync.WaitGroup
		stops := r.IntN(2) == 0
		tabs.Go(func() { b.signIn(ctx, network) })
		tabs.Go(func() {
			time.Sleep(time.Duration(r.IntN(4)*r.IntN(1000)) * time.Millisecond) // in virtual time
			if stops {
				b.press(ctx, "stop", network)
				return
			}
			b.signIn(ctx, networks[r.IntN(len(networks))])
		})
		tabs.Wait()
		return false
	}
	return b.signIn(ctx, network)
}

// press presses one of the page's buttons.
func (b *browser) press(ctx context.Context, action string, n *identityNetwork) (answer, *press) {
	p := b.s.beginPress(b.cookie(browserKnown), action)
	a, _ := b.send(ctx, action, "/signin", url.Values{
		"session": {b.s.token.Reveal()}, "action": {action}, "network": {n.id},
	}, nil, func() { p.end() })
	return a, p
}

// follow follows a redirect to the page.
func (b *browser) follow(ctx context.Context, a answer) (over bool) {
	if !strings.HasPrefix(a.to, "/?") {
		return a.over()
	}
	a, _ = b.send(ctx, "look", a.to, nil, nil, nil)
	return a.over()
}

// signIn signs in at an identity network, and returns from there.
func (b *browser) signIn(ctx context.Context, n *identityNetwork) (over bool) {
	answer, p := b.press(ctx, "continue", n)
	if !n.isTarget(answer) {
		return b.follow(ctx, answer)
	}
	a := b.beginAttempt(answer.to, n, p)
	r := b.w.draw("way of %s", a.name)
	if b.w.odd(r, "user gives up") {
		return false
	}
	thinks := time.Duration(r.IntN(3)*r.IntN(4000)) * time.Millisecond
	if b.w.odd(r, "user is slow") {
		thinks = sessions.LeaseDuration + time.Duration(r.IntN(20))*time.Second
	}
	time.Sleep(thinks) // in virtual time
	if b.w.odd(r, "another browser takes over") {
		return b.letOther(ctx, a, r)
	}
	return b.comeBack(ctx, a, r)
}

// letOther makes another browser take over the sign-in, and still returns from the network while that one is
// there.
func (b *browser) letOther(ctx context.Context, a *attempt, r *rand.Rand) (over bool) {
	b.press(ctx, "stop", a.network)
	other := b.s.browser(b.edges, b.name+"-other")
	other.send(ctx, "look", b.s.page(), nil, nil, nil)
	answer, p := other.press(ctx, "continue", a.network)
	over = b.comeBack(ctx, a, r)
	if !a.network.isTarget(answer) {
		return over
	}
	return other.comeBack(ctx, other.beginAttempt(answer.to, a.network, p), r)
}

// beginAttempt records an attempt that has begun at an identity network's page.
func (b *browser) beginAttempt(to string, n *identityNetwork, p *press) *attempt {
	u, _ := url.Parse(to)
	q := u.Query()
	a := &attempt{
		s: b.s, network: n, state: q.Get("state"), nonce: q.Get("nonce"), cookie: p.cookie,
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	p.granted = true
	b.s.attempts = append(b.s.attempts, a)
	a.name = fmt.Sprint(b.s.name, "a", len(b.s.attempts))
	b.w.names[flow.Hash(a.state)] = a.name
	b.w.attempts[q.Get("code_challenge")] = a
	b.w.noteLocked("%s begins %s at %s", b.name, a.name, n.id)
	return a
}

// comeBack returns from an identity network, in one of many ways.
func (b *browser) comeBack(ctx context.Context, a *attempt, r *rand.Rand) (over bool) {
	at, q := a.network, url.Values{"state": {a.state}}
	switch subject := fmt.Sprint("u", r.IntN(4)); {
	case b.w.odd(r, "declined at the network"):
		q.Set("error", "access_denied")
		a.declined = true
	case b.w.odd(r, "another's code"):
		victim := &attempt{s: b.s, name: a.name + "-victim", nonce: "another"}
		q.Set("code", a.network.issueCode(b.w, victim, subject))
	case b.w.odd(r, "mixed up networks"):
		at = networks[(1+r.IntN(len(networks)-1)+index(a.network))%len(networks)]
		q.Set("code", at.issueCode(b.w, a, subject))
	default:
		if b.w.isCalm() {
			subject = "calm-" + a.name // not another attempt's, and not denied
		}
		q.Set("code", at.issueCode(b.w, a, subject))
	}
	target := "/signin/" + at.id + "/callback?" + q.Encode()
	if b.w.odd(r, "cookie of another time") {
		b.forget(ctx)
	}
	if b.shown || b.w.odd(r, "return in another browser") {
		b.shown = false
		stranger := &browser{
			s: b.s, w: b.w, name: b.name + "-stranger", edges: b.edges, cookies: map[string]string{},
		}
		stranger.arrive(ctx, a, target)
	}
	var again sync.WaitGroup
	if b.w.odd(r, "returns twice") {
		again.Go(func() {
			time.Sleep(time.Duration(r.IntN(2)*r.IntN(3000)) * time.Millisecond) // in virtual time
			b.arrive(ctx, a, target)
		})
	}
	over = b.arrive(ctx, a, target)
	again.Wait()
	if b.hurried && len(a.returns) > 0 {
		return b.lookLater(ctx, a)
	}
	return over
}

// lookLater makes a user who left during a return in the calm look again later. The return must have been
// handled without the user.
func (b *browser) lookLater(ctx context.Context, a *attempt) (over bool) {
	b.hurried = false
	b.w.counts("left in the calm", "%s is left in the calm", a.name)
	time.Sleep(patience) // in virtual time
	page, ok := b.send(ctx, "look", b.s.page(), nil, nil, nil)
	if ok && page.title == pageAsk {
		b.w.fail("%s came to nothing, since its user did not wait", a.name)
	}
	return page.over()
}

func (b *browser) hasForgotten() bool { return b.forgot }

// forget makes the browser lose the cookie that identifies it, and get a new one with a look at the page.
func (b *browser) forget(ctx context.Context) {
	b.mu.Lock()
	delete(b.cookies, browserKnown)
	b.forgot = true
	b.mu.Unlock()
	b.send(ctx, "look", b.s.page(), nil, nil, nil)
}

// arrive sends the return from an identity network to an edge, and follows the redirect.
func (b *browser) arrive(ctx context.Context, a *attempt, target string) (over bool) {
	back, _ := b.send(ctx, "return", target, nil, func() { a.returned(b) }, nil)
	if back.notice() == "unsaved" {
		b.w.mu.Lock()
		a.unsaved = true
		b.w.mu.Unlock()
	}
	return b.follow(ctx, back)
}

func index(n *identityNetwork) int {
	for i := range networks {
		if networks[i] == n {
			return i
		}
	}
	return -1
}
