package integrator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions"
)

// keyPages are those about API keys.
type keyPages struct{ deps }

// keyRow is a key in the list.
type keyRow struct {
	account.Key

	State    account.KeyState
	LastUsed time.Time
	Limits   string
	Sends    sessions.Policy
}

// Good reports whether calls with the key are accepted.
func (k keyRow) Good() bool {
	return k.State == account.KeyActive || k.State == account.KeyRolled
}

// shownKey is a new key on its way to the page that shows it once.
type shownKey struct {
	Secret string      `json:"secret"`
	Key    account.Key `json:"key"`
	Unsure bool        `json:"-"` // whether it is stored is not known; such a key is shown at once
}

type keysData struct {
	New        *shownKey
	Keys, Over []keyRow // active, newest first; ended
}

// showKeys answers GET /dashboard/keys; with ?show=… a key that was just made is shown above the list, once.
func (h keyPages) showKeys(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	var fresh *shownKey
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		var shown shownKey
		switch err := h.Logins.Take(ctx, v.Login, name, &shown); {
		case errors.Is(err, logins.ErrNoParcel):
			h.Done(w, flashOnce, paths.Keys)
			return
		case err != nil:
			h.Fail(w, r, &v, err)
			return
		}
		fresh = &shown
	}
	h.drawKeys(ctx, w, r, v, fresh)
}

func (h keyPages) drawKeys(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	shown *shownKey) {
	d := keysData{New: shown}
	rows, err := h.keyRows(ctx, v.Account.ID)
	if err != nil {
		web.EventFrom(r.Context()).Err = err // the list matters more than the column
	}
	for _, row := range rows {
		if row.Good() {
			d.Keys = append(d.Keys, row)
		} else {
			d.Over = append(d.Over, row)
		}
	}
	status := http.StatusOK
	if shown != nil && shown.Unsure {
		status = http.StatusServiceUnavailable
	}
	h.Draw(w, site.View{
		Page: "keys", Title: "API Keys", Nav: "keys", Visit: &v, Status: status, Flash: h.TakeFlash(w, r),
		Data: d,
	})
}

// keyRows returns an account's keys, newest first, those that are accepted with their last use. If the last
// uses cannot be read, they are left out.
func (h keyPages) keyRows(ctx context.Context, id string) ([]keyRow, error) {
	keys := h.Directory.Keys(id)
	rows := make([]keyRow, 0, len(keys))
	var good []string
	for _, k := range slices.Backward(keys) {
		row := keyRow{Key: k, State: k.State(h.Now()), Sends: k.Policy}
		rate := k.RateLimit
		if rate == (account.Rate{}) {
			rate = h.Rate
		}
		row.Limits = rateWords(rate)
		if row.Sends == "" {
			row.Sends = h.Policy
		}
		if row.Good() {
			good = append(good, row.ID)
		}
		rows = append(rows, row)
	}
	if len(good) == 0 { // without ids it would be those of all accounts
		return rows, nil
	}
	used, err := h.Accounts.LastUsed(ctx, good...)
	for i := range rows {
		rows[i].LastUsed = used[rows[i].ID]
	}
	return rows, err
}

// rateWords describes a rate for people: 20 a second, bursts of 40.
func rateWords(r account.Rate) string {
	per := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour"}[r.Per]
	if per == "" {
		per = r.Per.String()
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.Count
	}
	article := "a"
	if per == "hour" {
		article = "an"
	}
	return fmt.Sprintf("%s %s %s, bursts of %s", site.Count(int64(r.Count)), article, per,
		site.Count(int64(burst)))
}

type newKeyData struct {
	Rate     string
	TestKeys bool
}

// showNewKey answers GET /dashboard/new-key.
func (h keyPages) showNewKey(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.drawNewKey(w, r, v, nil)
}

func (h keyPages) drawNewKey(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "newkey", Title: "Create an API key", Nav: "keys", Visit: &v, Form: f, Status: status,
		Flash: h.TakeFlash(w, r),
		Data:  newKeyData{rateWords(h.Rate), h.TestKeys},
	})
}

// createKey answers POST /dashboard/new-key.
func (h keyPages) createKey(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	o := h.keyOptions(f)
	if h.hasManyKeys(v.Account.ID) {
		f.Wrong("name", manyKeysFault)
	}
	if !f.OK() {
		h.drawNewKey(w, r, v, f)
		return
	}
	secret, k, err := h.Accounts.CreateKey(ctx, v.Actor(), v.Account.ID, o)
	switch {
	case err == nil:
		h.handKey(ctx, w, r, v, shownKey{Secret: secret, Key: k})
	case secret != "":
		h.showUnsure(w, r, v, shownKey{Secret: secret, Key: k, Unsure: true}, err)
	case errors.Is(err, accountstore.ErrManyKeys):
		f.Wrong("name", manyKeysFault)
		h.drawNewKey(w, r, v, f)
	case f.Take(err):
		h.drawNewKey(w, r, v, f)
	default:
		h.Fail(w, r, &v, err)
	}
}

const manyKeysFault = "This account has created 100 keys in 24 hours and cannot create more for now. " +
	"You can still revoke keys. Ask the operator of this service if you need one right away."

// hasManyKeys reports whether the directory shows as many keys of the last 24 hours as an account may get.
// The store also counts those that are being made, but none that an older build has made.
func (h keyPages) hasManyKeys(id string) bool {
	fresh := 0
	for _, k := range h.Directory.Keys(id) {
		if h.Now().Sub(k.CreatedAt) < 24*time.Hour {
			fresh++
		}
	}
	return fresh >= accountstore.MaxKeys
}

// keyOptions reads the form of a new key.
func (h keyPages) keyOptions(f *form.Form) account.KeyOptions {
	o := account.KeyOptions{Name: f.Text("name")}
	if o.Name == "" {
		f.Wrong("name", "Give the key a name to recognize it, for example production.")
	}
	switch f.Text("mode") {
	case "live":
	case "test":
		if o.Test = h.TestKeys; !o.Test {
			f.Wrong("mode", "This service accepts no test keys. Choose live.")
		}
	default:
		f.Wrong("mode", "Choose live or test.")
	}
	if day := f.Text("expires_at"); day != "" {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			f.Wrong("expires_at", "Enter a date such as 2027-01-31, or leave it empty.")
		} else if o.ExpiresAt = at.AddDate(0, 0, 1); !o.ExpiresAt.After(h.Now()) { // to the end of that day
			f.Wrong("expires_at", "That date has passed. Choose a later one, or leave it empty.")
		}
	}
	switch o.Policy = sessions.Policy(f.Text("policy")); o.Policy {
	case "", sessions.PolicyOnce, sessions.PolicyAtLeastOnce:
	default:
		f.Wrong("policy", "Choose one of the three.")
	}
	return o
}

// handKey redirects to the list, where a new key is shown once. The list comes from the directory, so handKey
// waits for it.
func (h keyPages) handKey(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	k shownKey) {
	name, err := h.Logins.Hand(ctx, v.Login, k)
	h.awaitKey(ctx, v.Account.ID, func(other account.Key) bool { return other.ID == k.Key.ID })
	// the key exists, and the previous one may have ended: better shown in the answer to a POST than never
	if err != nil {
		web.EventFrom(r.Context()).Err = err
		h.drawKeys(ctx, w, r, v, &k)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Keys+"?"+form.Query("show", name))
}

// showUnsure shows a key that may or may not be stored: it may be the only one that works. If it is stored,
// it counts.
func (h keyPages) showUnsure(w http.ResponseWriter, r *http.Request, v site.Visit, k shownKey, err error) {
	web.EventFrom(r.Context()).Err = err
	ctx, cancel := h.Within(r) // the requested one has used up its own
	defer cancel()
	h.awaitKey(ctx, v.Account.ID, func(other account.Key) bool { return other.ID == k.Key.ID })
	h.drawKeys(ctx, w, r, v, &k)
}

// awaitKey waits until the directory shows a key as it should.
func (h keyPages) awaitKey(ctx context.Context, id string, is func(account.Key) bool) {
	site.Await(ctx, func() bool { return slices.ContainsFunc(h.Directory.Keys(id), is) })
}

// key returns the key that a path names. It answers 404 unless the key is the account's.
func (h keyPages) key(w http.ResponseWriter, r *http.Request, v site.Visit) (account.Key, bool) {
	keys := h.Directory.Keys(v.Account.ID)
	i := slices.IndexFunc(keys, func(k account.Key) bool { return k.ID == r.PathValue("key") })
	if i < 0 {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return account.Key{}, false
	}
	return keys[i], true
}

// showRoll answers GET /dashboard/keys/{key}/roll.
func (h keyPages) showRoll(w http.ResponseWriter, r *http.Request, v site.Visit) {
	if k, ok := h.key(w, r, v); ok {
		h.drawRoll(w, v, k, nil)
	}
}

func (h keyPages) drawRoll(w http.ResponseWriter, v site.Visit, k account.Key, f *form.Form) {
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "roll", Title: "Roll an API key", Nav: "keys", Visit: &v, Form: f, Status: status, Data: k,
	})
}

// graces are the choices of a grace or an overlap, in the order in which they are shown.
var graces = map[string]time.Duration{
	"0": 0, "1h": time.Hour, "24h": 24 * time.Hour, "72h": 72 * time.Hour, "168h": 7 * 24 * time.Hour,
}

// rollKey answers POST /dashboard/keys/{key}/roll.
func (h keyPages) rollKey(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	old, ok := h.key(w, r, v)
	if !ok {
		return
	}
	f := form.New(r)
	grace, known := graces[f.Text("grace")]
	if !known {
		f.Wrong("grace", "Choose one of these.")
	}
	if h.hasManyKeys(v.Account.ID) {
		f.Wrong("grace", manyKeysFault)
	}
	if !f.OK() {
		h.drawRoll(w, v, old, f)
		return
	}
	secret, k, err := h.Accounts.RollKey(ctx, v.Actor(), v.Account.ID, old.ID, grace)
	switch {
	case err == nil:
		h.handKey(ctx, w, r, v, shownKey{Secret: secret, Key: k})
	case secret != "":
		h.showUnsure(w, r, v, shownKey{Secret: secret, Key: k, Unsure: true}, err)
	case errors.Is(err, accountstore.ErrManyKeys):
		f.Wrong("grace", manyKeysFault)
		h.drawRoll(w, v, old, f)
	case errors.Is(err, account.ErrRolled), errors.Is(err, account.ErrKeyEnded),
		errors.Is(err, account.ErrNoKey):
		h.Done(w, site.FlashGone, paths.Keys)
	default:
		h.Fail(w, r, &v, err)
	}
}

// showRevoke answers GET /dashboard/keys/{key}/revoke: the question.
func (h keyPages) showRevoke(w http.ResponseWriter, r *http.Request, v site.Visit) {
	if k, ok := h.key(w, r, v); ok {
		h.Draw(w, site.View{Page: "revoke", Title: "Revoke an API key", Nav: "keys", Visit: &v, Data: k})
	}
}

// revokeKey answers POST /dashboard/keys/{key}/revoke. A repeat is harmless.
func (h keyPages) revokeKey(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	k, ok := h.key(w, r, v)
	if !ok {
		return
	}
	if _, err := h.Accounts.RevokeKey(ctx, v.Actor(), v.Account.ID, k.ID); err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	h.awaitKey(ctx, v.Account.ID, func(other account.Key) bool {
		return other.ID == k.ID && !other.RevokedAt.IsZero()
	})
	h.Done(w, flashKeyRevoked, paths.Keys)
}
