package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
	"verifyd/sessions"
)

// keyRow is a key in the list.
type keyRow struct {
	account.Key

	State    account.KeyState
	LastUsed time.Time
	Limits   string
	Sends    sessions.Policy
}

// Good says whether calls with the key are taken.
func (k keyRow) Good() bool {
	return k.State == account.KeyActive || k.State == account.KeyRolled
}

// shownKey is a new key on its way to the page that shows it once.
type shownKey struct {
	Secret string      `json:"secret"`
	Key    account.Key `json:"key"`
}

type keysData struct {
	New        *shownKey
	Keys, Over []keyRow // that are taken, newest first; that are not any more
}

// showKeys answers GET /dashboard/keys; with ?show=… a key that was just made stands above the list, once.
func (h *Handler) showKeys(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	var fresh *shownKey
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		var shown shownKey
		switch err := h.Logins.Take(ctx, v.login, name, &shown); {
		case errors.Is(err, logins.ErrNoParcel):
			h.done(w, flashOnce, pathKeys)
			return
		case err != nil:
			h.fail(w, r, &v, err)
			return
		}
		fresh = &shown
	}
	h.drawKeys(ctx, w, r, v, fresh)
}

func (h *Handler) drawKeys(ctx context.Context, w http.ResponseWriter, r *http.Request, v visit, shown *shownKey) {
	d := keysData{New: shown}
	rows, err := h.keyRows(ctx, v.account.ID)
	if err != nil {
		edge.LineOf(r.Context()).Err = err // the list is worth more than the column
	}
	for _, row := range rows {
		if row.Good() {
			d.Keys = append(d.Keys, row)
		} else {
			d.Over = append(d.Over, row)
		}
	}
	h.draw(w, view{page: "keys", Title: "API Keys", Nav: "keys", visit: &v, Flash: h.takeFlash(w, r), Data: d})
}

// keyRows gives an account's keys, newest first. An error leaves out when they were last used.
func (h *Handler) keyRows(ctx context.Context, id string) ([]keyRow, error) {
	keys := h.Directory.Keys(id)
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	var used map[string]time.Time
	var err error
	if len(ids) > 0 { // without ids it would be everybody's
		used, err = h.Accounts.LastUsed(ctx, ids...)
	}
	rows := make([]keyRow, 0, len(keys))
	for _, k := range slices.Backward(keys) {
		row := keyRow{Key: k, State: k.State(h.Now()), LastUsed: used[k.ID], Sends: k.Policy}
		rate := k.RateLimit
		if rate == (account.Rate{}) {
			rate = h.Rate
		}
		row.Limits = rateWords(rate)
		if row.Sends == "" {
			row.Sends = h.Policy
		}
		rows = append(rows, row)
	}
	return rows, err
}

// rateWords says a rate for people: 20 a second, bursts of 40.
func rateWords(r account.Rate) string {
	per := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour"}[r.Per]
	if per == "" {
		per = r.Per.String()
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.Count
	}
	return fmt.Sprintf("%s a %s, bursts of %s", count(int64(r.Count)), per, count(int64(burst)))
}

type newKeyData struct {
	Rate     string
	TestKeys bool
}

// showNewKey answers GET /dashboard/new-key.
func (h *Handler) showNewKey(w http.ResponseWriter, r *http.Request, v visit) {
	h.drawNewKey(w, r, v, nil)
}

func (h *Handler) drawNewKey(w http.ResponseWriter, r *http.Request, v visit, f *form) {
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.draw(w, view{
		page: "newkey", Title: "Create an API key", Nav: "keys", visit: &v, Form: f, status: status, Flash: h.takeFlash(w, r),
		Data: newKeyData{rateWords(h.Rate), h.TestKeys},
	})
}

// createKey answers POST /dashboard/new-key.
func (h *Handler) createKey(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	f := newForm(r)
	o := h.keyOptions(f)
	if h.manyKeys(v.account.ID) {
		f.wrong("name", manyKeysFault)
	}
	if !f.ok() {
		h.drawNewKey(w, r, v, f)
		return
	}
	secret, k, err := h.Accounts.CreateKey(ctx, v.actor(), v.account.ID, o)
	switch {
	case err == nil:
		h.handKey(ctx, w, r, v, shownKey{secret, k})
	case f.take(err):
		h.drawNewKey(w, r, v, f)
	default:
		h.fail(w, r, &v, err)
	}
}

// keysMost bounds the keys that an account gets in a day, rolled ones too: keys are kept when they are over, and every edge holds
// them in memory. The directory that counts them may be a moment behind; the operator's commands know no such bound.
const keysMost = 100

const manyKeysFault = "This account has got 100 keys in 24 hours, and gets no more for now. Revoking still works. Ask the operator of this service if you need one at once."

func (h *Handler) manyKeys(id string) bool {
	fresh := 0
	for _, k := range h.Directory.Keys(id) {
		if h.Now().Sub(k.CreatedAt) < 24*time.Hour {
			fresh++
		}
	}
	return fresh >= keysMost
}

// keyOptions reads the form of a new key.
func (h *Handler) keyOptions(f *form) account.KeyOptions {
	o := account.KeyOptions{Name: f.text("name")}
	if o.Name == "" {
		f.wrong("name", "Give the key a name to know it by, for example production.")
	}
	switch f.text("mode") {
	case "live":
	case "test":
		if o.Test = h.TestKeys; !o.Test {
			f.wrong("mode", "This service takes no test keys. Choose live.")
		}
	default:
		f.wrong("mode", "Choose live or test.")
	}
	if day := f.text("expires_at"); day != "" {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			f.wrong("expires_at", "Write a day as in 2027-01-31, or leave it empty.")
		} else if o.ExpiresAt = at.AddDate(0, 0, 1); !o.ExpiresAt.After(h.Now()) { // to the end of that day
			f.wrong("expires_at", "That day is over. Choose one to come, or leave it empty.")
		}
	}
	switch o.Policy = sessions.Policy(f.text("policy")); o.Policy {
	case "", sessions.PolicyOnce, sessions.PolicyAtLeastOnce:
	default:
		f.wrong("policy", "Choose one of the three.")
	}
	return o
}

// handKey leads to the list, where a new key is shown once. The list is the directory's, so that it is waited for.
func (h *Handler) handKey(ctx context.Context, w http.ResponseWriter, r *http.Request, v visit, k shownKey) {
	name, err := h.Logins.Hand(ctx, v.login, k)
	h.awaitKey(ctx, v.account.ID, func(other account.Key) bool { return other.ID == k.Key.ID })
	if err != nil { // the key is made, and the one before it may have ended: better shown at a POST than never
		edge.LineOf(r.Context()).Err = err
		h.drawKeys(ctx, w, r, v, &k)
		return
	}
	page.SeeOther(w, h.prefix+pathKeys+"?"+query("show", name))
}

const (
	// awaitMost bounds how long a change waits for the directory of this process, which is a few milliseconds behind the store.
	awaitMost  = time.Second
	awaitPause = 2 * time.Millisecond
)

// awaitKey waits until the directory shows a key as it should, so that the next page shows what was just done.
func (h *Handler) awaitKey(ctx context.Context, id string, is func(account.Key) bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	tick := time.NewTicker(awaitPause)
	defer tick.Stop()
	for !slices.ContainsFunc(h.Directory.Keys(id), is) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// key gives the key that a path names, if it is the account's, and answers 404 otherwise.
func (h *Handler) key(w http.ResponseWriter, r *http.Request, v visit) (account.Key, bool) {
	keys := h.Directory.Keys(v.account.ID)
	i := slices.IndexFunc(keys, func(k account.Key) bool { return k.ID == r.PathValue("key") })
	if i < 0 {
		h.drawProblem(w, &v, problemNotFound)
		return account.Key{}, false
	}
	return keys[i], true
}

// showRoll answers GET /dashboard/keys/{key}/roll.
func (h *Handler) showRoll(w http.ResponseWriter, r *http.Request, v visit) {
	if k, ok := h.key(w, r, v); ok {
		h.draw(w, view{page: "roll", Title: "Roll an API key", Nav: "keys", visit: &v, Data: k})
	}
}

// graces are the choices of a grace or an overlap, in the order in which they are shown.
var graces = map[string]time.Duration{
	"0": 0, "1h": time.Hour, "24h": 24 * time.Hour, "72h": 72 * time.Hour, "168h": 7 * 24 * time.Hour,
}

// rollKey answers POST /dashboard/keys/{key}/roll.
func (h *Handler) rollKey(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	old, ok := h.key(w, r, v)
	if !ok {
		return
	}
	f := newForm(r)
	grace, known := graces[f.text("grace")]
	if !known {
		f.wrong("grace", "Choose one of these.")
	}
	if h.manyKeys(v.account.ID) {
		f.wrong("grace", manyKeysFault)
	}
	if !f.ok() {
		h.draw(w, view{page: "roll", Title: "Roll an API key", Nav: "keys", visit: &v, Form: f, status: http.StatusUnprocessableEntity, Data: old})
		return
	}
	secret, k, err := h.Accounts.RollKey(ctx, v.actor(), v.account.ID, old.ID, grace)
	switch {
	case err == nil:
		h.handKey(ctx, w, r, v, shownKey{secret, k})
	case errors.Is(err, account.ErrRolled), errors.Is(err, account.ErrKeyEnded), errors.Is(err, account.ErrNoKey):
		h.done(w, flashGone, pathKeys)
	default:
		h.fail(w, r, &v, err)
	}
}

// showRevoke answers GET /dashboard/keys/{key}/revoke: the question.
func (h *Handler) showRevoke(w http.ResponseWriter, r *http.Request, v visit) {
	if k, ok := h.key(w, r, v); ok {
		h.draw(w, view{page: "revoke", Title: "Revoke an API key", Nav: "keys", visit: &v, Data: k})
	}
}

// revokeKey answers POST /dashboard/keys/{key}/revoke. A repeat is harmless.
func (h *Handler) revokeKey(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	k, ok := h.key(w, r, v)
	if !ok {
		return
	}
	if _, err := h.Accounts.RevokeKey(ctx, v.actor(), v.account.ID, k.ID); err != nil {
		h.fail(w, r, &v, err)
		return
	}
	h.awaitKey(ctx, v.account.ID, func(other account.Key) bool { return other.ID == k.ID && !other.RevokedAt.IsZero() })
	h.done(w, flashKeyRevoked, pathKeys)
}
