package site

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/page"
	"verifyd/sessions/timeline"
)

//go:embed web
var webFiles embed.FS

// templates turns views into HTML. Each page is drawn inside web/frame.html.
type templates struct {
	pages         map[string]func() (*template.Template, error) // read at the first use
	css, js, icon page.Asset
}

func loadTemplates(parts []Part) (*templates, error) {
	t := &templates{
		pages: map[string]func() (*template.Template, error){}, icon: page.NamedIcon("dashboard.svg"),
	}
	var err error
	if t.css, err = page.LoadStyle(webFiles, "web/dashboard.css"); err != nil {
		return nil, err
	}
	if t.js, err = page.LoadAsset(webFiles, "web/dashboard.js",
		"text/javascript; charset=utf-8"); err != nil {
		return nil, err
	}
	for _, part := range append(parts, Part{Files: webFiles, Pages: []string{"problem"}}) {
		// An error in a template fails the start. For that a part's pages are read into one frame, which each
		// of them changes: a frame for each took most of the time.
		frame, err := loadFrame(part)
		if err != nil {
			return nil, err
		}
		for _, name := range part.Pages {
			if _, err := loadPage(frame, part, name); err != nil {
				return nil, err
			}
			t.pages[name] = sync.OnceValues(func() (*template.Template, error) {
				own, err := loadFrame(part)
				if err != nil {
					return nil, err
				}
				return loadPage(own, part, name)
			})
		}
	}
	return t, nil
}

// loadFrame reads what is around a part's pages. All pages in their frames are two megabytes, which a service
// need not hold while its dashboard is not used.
func loadFrame(part Part) (*template.Template, error) {
	t, err := template.New("frame.html").Option("missingkey=error").Funcs(functions).Funcs(times).
		Funcs(part.Functions).
		ParseFS(webFiles, "web/frame.html", "web/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the template around all pages: %w", err)
	}
	return t, nil
}

// loadPage reads a page into a frame.
func loadPage(frame *template.Template, part Part, name string) (*template.Template, error) {
	t, err := frame.ParseFS(part.Files, "web/"+name+".html")
	if err != nil {
		return nil, fmt.Errorf("read the template of page %s: %w", name, err)
	}
	return t, nil
}

// assets are the files that pages refer to.
func (t *templates) assets() []page.Asset {
	return []page.Asset{t.css, t.js, t.icon}
}

// functions are what templates may call.
var functions = template.FuncMap{
	"typed":      page.Typed,
	"typedLines": page.TypedLines,
	"count":      Count,
	"steps":      timeline.Phases,
	"took":       timeline.FormatDuration,

	"toneOfState":    ToneOfState,
	"toneOfDelivery": ToneOfDelivery,
	"toneOfVerdict":  ToneOfVerdict,
}

// Count formats a number with its thousands separated.
func Count(n int64) string {
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

// View is what a page is drawn from.
type View struct {
	Page  string // a page of some Part
	Title string
	Nav   string // the entry of the bar that is current
	Form  *form.Form
	Data  any
	Flash *Flash
	// Search is the text in the search field.
	Search string
	Live   string // where the page's changes are reported; empty: it has none

	Status     int    // 200 when 0
	Visit      *Visit // nil: the visitor is in no account
	Operating  bool   // a page of the operator's, with a bar of its own
	FormAction string // of the content security policy; 'self' where empty
	Frames     bool   // it shows other pages of this service in frames
}

// tab is one entry of the bar.
type tab struct {
	Key, Name, Path string
	Action          access.Action // the action that it requires
}

var tabs = []tab{
	{"sessions", "Sessions", paths.Sessions, access.ActionView},
	{"callbacks", "Callbacks", paths.Callbacks, access.ActionView},
	{"keys", "API Keys", paths.Keys, access.ActionView},
	{"signing", "Signing", paths.Signing, access.ActionView},
	{"usage", "Usage", paths.Usage, access.ActionView},
	{"quickstart", "Quickstart", paths.Quickstart, access.ActionView},
	{"notices", "Notices", paths.Notices, access.ActionView},
	{"members", "Members", paths.Members, access.ActionView},
	{"audit", "Audit log", paths.Audit, access.ActionAudit},
}

// operatorTabs is the bar of the operator's pages.
var operatorTabs = []tab{
	{Key: "operator", Name: "Service", Path: paths.Operator},
	{Key: "accounts", Name: "Accounts", Path: paths.OperatorAccounts},
	{Key: "hosts", Name: "Receiver hosts", Path: paths.OperatorHosts},
	{Key: "dead", Name: "Not delivered", Path: paths.Undelivered},
	{Key: "operator-audit", Name: "Audit log", Path: paths.OperatorAudit},
}

// drawn is a view for the templates.
type drawn struct {
	View

	s *Site
}

// To returns the address of a path of this site.
func (d drawn) To(path string) string { return d.s.Prefix + path }

// Document returns the address of the documentation of a subject.
func (d drawn) Document(about string) (string, error) {
	to, err := paths.Document(about)
	return d.To(to), err
}

// CSS, JS and Icon return the addresses of the assets.
func (d drawn) CSS() string { return d.s.Prefix + pathAssets + d.s.templates.css.Name }

// JS is the script's address.
func (d drawn) JS() string { return d.s.Prefix + pathAssets + d.s.templates.js.Name }

// Icon is the icon's address.
func (d drawn) Icon() string { return d.s.Prefix + pathAssets + d.s.templates.icon.Name }

// Inside reports whether the page is one of an account.
func (d drawn) Inside() bool { return d.Visit != nil && !d.Operating }

// Account is the selected account.
func (d drawn) Account() account.Account { return d.Visit.Account }

// Accounts are the visitor's other accounts.
func (d drawn) Accounts() []account.Account {
	var others []account.Account
	for _, a := range d.Visit.Accounts {
		if a.ID != d.Visit.Account.ID {
			others = append(others, a)
		}
	}
	return others
}

// Who is what the visitor is called, and Role what they are.
func (d drawn) Who() string { return d.Visit.Who() }

// Role is the visitor's.
func (d drawn) Role() access.Role { return d.Visit.Role }

// Tabs are the bar's entries that the visitor may see.
func (d drawn) Tabs() []tab {
	var seen []tab
	for _, t := range tabs {
		if d.Visit.May(t.Action) {
			seen = append(seen, t)
		}
	}
	return seen
}

// Unread is how many notices the visitor has not read, as the bar shows it; empty: none.
func (d drawn) Unread() string {
	switch n := d.Visit.Unread; {
	case n == 0:
		return ""
	case n > maxUnread:
		return strconv.Itoa(maxUnread) + "+"
	default:
		return strconv.Itoa(n)
	}
}

// maxUnread is the greatest number that the bar shows.
const maxUnread = 99

// May reports whether the visitor has the right to an action.
func (d drawn) May(action string) bool { return d.Visit != nil && d.Visit.May(access.Action(action)) }

// Network returns the display name of a network.
func (d drawn) Network(id string) string { return d.s.NetworkName(id) }

// Base is {base_url}.
func (d drawn) Base() string { return d.s.Base }

// Operator reports whether the visitor is an operator.
func (d drawn) Operator() bool { return d.Visit != nil && d.Visit.Operator }

// HasAccount reports whether the visitor of an operator's page is a member of some account, too.
func (d drawn) HasAccount() bool {
	l := d.Visit.Login
	return l.Subject != "" && len(d.s.Members.AccountsOf(l.Network, l.Subject)) > 0
}

// OperatorTabs are the entries of the operator's bar.
func (d drawn) OperatorTabs() []tab { return operatorTabs }

// Draw answers with a page. It is rendered completely before the first byte is sent.
func (s *Site) Draw(w http.ResponseWriter, v View) {
	var b bytes.Buffer
	t, err := s.templates.pages[v.Page]()
	if err == nil {
		err = t.Execute(&b, drawn{v, s})
	}
	if err != nil {
		s.Log.Error().Err(err).Str("page", v.Page).Msg("a page could not be drawn")
		http.Error(w, "Something went wrong on our side. Please try again.", http.StatusInternalServerError)
		return
	}
	if v.FormAction == "" {
		v.FormAction = "'self'"
	}
	head := w.Header()
	more := []string{"script-src 'self'", "connect-src 'self'"}
	if v.Frames {
		more = append(more, "frame-src 'self'")
	}
	head.Set("Content-Security-Policy", page.Policy(v.FormAction, more...))
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(b.Len()))
	if v.Status != 0 {
		w.WriteHeader(v.Status)
	}
	_, _ = w.Write(b.Bytes()) // the client is gone
}
