package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/told"
)

//go:embed web
var webFiles embed.FS

// pages are the templates, a file each, drawn inside web/frame.html.
var pages = []string{
	"problem", "login", "link", "invite", "newaccount", "keys", "newkey", "roll", "revoke", "sessions", "session", "signing", "usage",
	"quickstart", "members", "remove", "audit", "settings", "face", "operator", "accounts", "hosts", "undelivered", "operatoraudit",
}

// painter turns views into HTML.
type painter struct {
	pages         map[string]func() (*template.Template, error) // read at the first use
	css, js, icon page.Asset
}

func newPainter() (*painter, error) {
	p := &painter{pages: map[string]func() (*template.Template, error){}}
	var err error
	if p.css, err = page.LoadStyle(webFiles, "web/dashboard.css"); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		into        *page.Asset
		file, media string
	}{
		{&p.js, "web/dashboard.js", "text/javascript; charset=utf-8"},
		{&p.icon, "web/dashboard.svg", "image/svg+xml"},
	} {
		asset, err := page.LoadAsset(webFiles, a.file, a.media)
		if err != nil {
			return nil, err
		}
		*a.into = asset
	}
	for _, name := range pages {
		load := func() (*template.Template, error) { return loadPage(name) }
		if _, err := load(); err != nil { // a fault in a template is one of the start
			return nil, err
		}
		p.pages[name] = sync.OnceValues(load)
	}
	return p, nil
}

// loadPage reads a page with its frame. All of them are two megabytes, which a service whose dashboard nobody opens need not hold.
func loadPage(name string) (*template.Template, error) {
	t, err := template.New("frame.html").Option("missingkey=error").Funcs(functions).
		ParseFS(webFiles, "web/frame.html", "web/parts.html", "web/"+name+".html")
	if err != nil {
		return nil, fmt.Errorf("read the template of page %s: %w", name, err)
	}
	return t, nil
}

func (p *painter) assets() []page.Asset { return []page.Asset{p.css, p.js, p.icon} }

// functions are what templates may call.
var functions = template.FuncMap{
	"typed": page.Typed,
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"day":   func(t time.Time) string { return t.UTC().Format("2 January 2006") },
	"date":  func(t time.Time) string { return t.UTC().Format("2 Jan 2006") },
	"when":  func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04") },
	"short": func(t time.Time) string { return t.UTC().Format("2 Jan, 15:04:05") },
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05.000") },
	"count": count,
}

// count writes a number with its thousands apart.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	var groups []string
	for len(s) > 3 {
		groups = append([]string{s[len(s)-3:]}, groups...)
		s = s[:len(s)-3]
	}
	return sign + strings.Join(append([]string{s}, groups...), ",")
}

// view is what a page is drawn from.
type view struct {
	Title string
	Nav   string // the entry of the bar that is current
	Form  *form
	Data  any
	Flash *flash
	Live  string // where the page's changes are told; empty: it has none

	page       string
	status     int
	visit      *visit // nil: nobody is inside an account
	operating  bool   // a page of the operator's, with a bar of its own
	formAction string // 'self' where empty
}

// tab is one entry of the bar.
type tab struct {
	Key, Name, Path string
	Action          account.Action // what one must be allowed to see it
}

var tabs = []tab{
	{"sessions", "Sessions", pathSessions, account.ActionView},
	{"keys", "API Keys", pathKeys, account.ActionView},
	{"signing", "Signing", pathSigning, account.ActionView},
	{"usage", "Usage", pathUsage, account.ActionView},
	{"quickstart", "Quickstart", pathQuickstart, account.ActionView},
	{"members", "Members", pathMembers, account.ActionView},
	{"audit", "Audit log", pathAudit, account.ActionAudit},
}

// drawn is a view as the templates see it.
type drawn struct {
	view

	h *Handler
}

// To gives the address of a path of this site.
func (d drawn) To(path string) string { return d.h.prefix + path }

// CSS, JS and Icon give the addresses of the assets.
func (d drawn) CSS() string { return d.h.prefix + pathAssets + d.h.painter.css.Name }

// JS is the script's address.
func (d drawn) JS() string { return d.h.prefix + pathAssets + d.h.painter.js.Name }

// Icon is the icon's address.
func (d drawn) Icon() string { return d.h.prefix + pathAssets + d.h.painter.icon.Name }

// Inside says whether the page is one of an account.
func (d drawn) Inside() bool { return d.visit != nil && !d.operating }

// Account is the account that is looked at.
func (d drawn) Account() account.Account { return d.visit.account }

// Accounts are the visitor's other accounts.
func (d drawn) Accounts() []account.Account {
	var others []account.Account
	for _, a := range d.visit.accounts {
		if a.ID != d.visit.account.ID {
			others = append(others, a)
		}
	}
	return others
}

// Who is what the visitor is called, and Role what they are.
func (d drawn) Who() string { return d.visit.who() }

// Role is the visitor's.
func (d drawn) Role() account.Role { return d.visit.role }

// Tabs are the bar's entries that the visitor may see.
func (d drawn) Tabs() []tab {
	var seen []tab
	for _, t := range tabs {
		if d.visit.may(t.Action) {
			seen = append(seen, t)
		}
	}
	return seen
}

// May says whether the visitor has the right to an action.
func (d drawn) May(action string) bool { return d.visit != nil && d.visit.may(account.Action(action)) }

// Network gives what people call a network.
func (d drawn) Network(id string) string { return d.h.networkName(id) }

// Base is {base_url}.
func (d drawn) Base() string { return d.h.base }

// ToneOfState and ToneOfDelivery give the colour that stands beside a word.
func (d drawn) ToneOfState(s sessions.State) string { return toneOfState(s) }

// ToneOfDelivery is ToneOfState for a delivery.
func (d drawn) ToneOfDelivery(s sessions.DeliveryState) string { return toneOfDelivery(s) }

// Steps and Took write down how long an attempt took.
func (d drawn) Steps(t sessions.Timing) []told.Step { return told.Steps(t) }

// Took writes a duration for people.
func (d drawn) Took(t time.Duration) string { return told.Took(t) }

// Curl is the call that starts a session, with a key, or with the place where a key belongs.
func (d drawn) Curl(key string) string {
	if key == "" {
		key = "$VERIFYD_API_KEY"
	}
	return "curl " + d.h.base + `/verify/init \
  -H "Authorization: Bearer ` + key + `" \
  -H "Content-Type: application/json" \
  -d '{
    "platform": "my app",
    "platform_user_id": "sailor_42",
    "callback_url": "https://bot.example.com/verified"
  }'`
}

// draw answers with a page. It is painted whole before the first byte leaves.
func (h *Handler) draw(w http.ResponseWriter, v view) {
	var b bytes.Buffer
	t, err := h.painter.pages[v.page]()
	if err == nil {
		err = t.Execute(&b, drawn{v, h})
	}
	if err != nil {
		h.Log.Error().Err(err).Str("page", v.page).Msg("a page could not be drawn")
		http.Error(w, "Something went wrong on our side. Please try again.", http.StatusInternalServerError)
		return
	}
	if v.formAction == "" {
		v.formAction = "'self'"
	}
	head := w.Header()
	head.Set("Content-Security-Policy", page.Policy(v.formAction, "script-src 'self'", "connect-src 'self'"))
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(b.Len()))
	if v.status != 0 {
		w.WriteHeader(v.status)
	}
	_, _ = w.Write(b.Bytes()) // nobody is left to be told
}
