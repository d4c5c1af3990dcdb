package signin

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"verifyd/edge/page"
	"verifyd/sessions"
	sessionfailure "verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// kind is one of the pages a user can see. Its name is the prefix of its texts' keys.
type kind struct {
	name   string
	status int
	tone   tone
}

// tone chooses the sign and the colour next to a page's heading.
type tone string

const (
	toneGood  tone = "good"
	toneBad   tone = "bad"
	tonePlain tone = "plain"
	toneWait  tone = "caution"
)

// The pages.
var (
	pageAsk  = kind{"ask", http.StatusOK, ""}
	pageCard = kind{"card", http.StatusOK, ""} // for link previews
	// the list of languages
	pageLanguages = kind{"languages", http.StatusOK, ""}
	pageVerified  = kind{"verified", http.StatusOK, toneGood}
	pageDeclined  = kind{"declined", http.StatusOK, tonePlain}
	pageRefused   = kind{"refused", http.StatusOK, toneBad}
	pageConfirm   = kind{"confirm", http.StatusOK, ""}
	// somebody signed in, and the code is in another browser
	pageSignedIn    = kind{"signed_in", http.StatusConflict, toneWait}
	pageUnconfirmed = kind{"unconfirmed", http.StatusOK, toneBad}
	pageCanceled    = kind{"canceled", http.StatusOK, tonePlain}
	pageExpired     = kind{"expired", http.StatusGone, tonePlain}
	pageClosed      = kind{"closed", http.StatusForbidden, toneWait}
	pageElsewhere   = kind{"elsewhere", http.StatusConflict, toneWait}
	pageCookies     = kind{"cookies", http.StatusBadRequest, toneWait}
	pageOften       = kind{"often", http.StatusTooManyRequests, toneWait}
	pageUntestable  = kind{"untestable", http.StatusGone, toneWait}
	pageUnknown     = kind{"unknown", http.StatusNotFound, tonePlain}
	// its status is that of what was asked for
	pageNowhere     = kind{"nowhere", http.StatusNotFound, tonePlain}
	pageLost        = kind{"lost", http.StatusBadRequest, toneWait}
	pageForeign     = kind{"foreign", http.StatusForbidden, toneWait}
	pageMalformed   = kind{"malformed", http.StatusBadRequest, toneWait}
	pageUnavailable = kind{"unavailable", http.StatusServiceUnavailable, toneWait}
)

// retryAway is what a user is asked to wait while JetStream is away, in seconds: an embedded server is back
// in about one, a cluster has a new leader in a few.
const retryAway = 5

// notice is a code in the clean page's address that chooses what is said above the buttons of a session still
// pending.
type notice string

const (
	noteUnreachable notice = "unreachable" // the provider did not answer
	noteUnfinished  notice = "unfinished"  // any other failure with the provider
	noteClock       notice = "clock"       // the provider's clock and ours differ
	noteStopped     notice = "stopped"     // the user gave the attempt up
	// the attempt was used before, perhaps a moment ago by the same press
	noteChecking    notice = "checking"
	noteUnconfirmed notice = "unconfirmed" // the completion may be stored
	noteUnsaved     notice = "unsaved"     // the completion is not stored
)

// notices say which of them offer to look again instead of starting over.
var notices = map[notice]struct{ again bool }{
	noteUnreachable: {}, noteUnfinished: {}, noteClock: {}, noteStopped: {}, noteChecking: {again: true},
	noteUnconfirmed: {again: true}, noteUnsaved: {},
}

// fact is one row of what is being verified; the label is a text's key.
type fact struct{ Label, Value string }

// row is a fact as it is drawn. Tall: it takes so much room that it is scrolled in a box of its own.
type row struct {
	Label string
	Tall  bool
	Text  template.HTML
}

// roomShown is what is shown at once of a value, in characters: some seven lines of a phone.
const roomShown = 100

func rowsOf(facts []fact) []row {
	rows := make([]row, len(facts))
	for i, f := range facts {
		rows[i] = row{f.Label, page.Room(f.Value) > roomShown, page.Typed(f.Value)}
	}
	return rows
}

// button is the way to one identity network. Away: it did not answer lately, which the page says; it may be
// pressed all the same. Plain: it is not the main one.
type button struct {
	Network, Name string
	Away, Plain   bool
	Second        bool // after a sign-in that proves the platform account
}

// look is what pages of many sessions have in common.
type look struct {
	Kind    string
	Tone    tone
	Prefix  string
	CSS     string
	Icon    string
	Test    bool
	Preview bool   // buttons do nothing
	Left    string // a text's key
	Lead    string // of the question: a text's key
	Gives   bool   // a code follows the sign-in
	Note    string // a text's key
	// AgainText is the text's key on the button that leads to Again.
	AgainText string
	Stop      bool    // this browser holds the session and may give it up
	Caution   bool    // the page has a word of caution
	Lang      string  // the language chosen on a page, for the forms
	Sign      sign    // the requester's; the zero value: it has none
	Logo      picture // the requester's, in the place of its sign; the zero value: it has none
	Colours   string  // where the style sheet of the requester's colours is; empty: it has none
	Verified  bool    // an operator vouches for the requester's name
	Back      string  // where "Back to …" leads; empty for none
	Nowhere   bool    // nobody's link: the page shows the way for those who send links
	Languages string  // where the list of them is; empty for none

	words *locale
	count int // what a text of the page counts
}

// view is what a page's template is given.
type view struct {
	look

	Session string // the token, for the forms
	Facts   []fact
	Rows    []row // Facts, as paint draws them
	Buttons []button
	Expires string   // RFC 3339, UTC
	Code    string   // that confirms the sign-in
	Again   string   // where another look leads; empty for none
	InApp   *inApp   // nil outside of apps
	Choices []choice // the list of languages, on its own page

	token      string // of the session whose page it is; empty: it is nobody's, or seldom seen
	values     map[string]string
	typed      map[string]template.HTML // values, as paint draws them
	retryAfter int                      // seconds for Retry-After; 0: none
	status     int
	formAction string
}

// drawLanguages draws the list of languages where an address asks for it, with lang given and empty, and
// returns true. Any other page gets the way there. keeps is what stays in the address when the language
// changes.
func (p *pages) drawLanguages(w http.ResponseWriter, vis *visitor, asked, keeps url.Values) bool {
	address := "?" // relative: the same page again
	if len(keeps) > 0 {
		address += keeps.Encode() + "&"
	}
	if !slices.Equal(asked["lang"], []string{""}) {
		vis.languages = address + "lang="
		if vis.chosen != "" {
			vis.languages += "&from=" + vis.chosen
		}
		return false
	}
	v := p.view(*vis, pageLanguages)
	v.Choices = p.locales.choices(vis.words, address)
	p.draw(w, v)
	return true
}

// view starts the view of a page.
func (p *pages) view(vis visitor, k kind) view {
	v := view{
		look: look{
			Kind: k.name, Tone: k.tone, Prefix: p.prefix,
			CSS: p.prefix + pathAssets + p.assets.css.Name, Icon: p.prefix + pathAssets + p.assets.icon.Name,
			Lang: vis.chosen, Languages: vis.languages, words: vis.words, AgainText: "unavailable.again",
		},
		status: k.status, formAction: "'none'", values: map[string]string{},
	}
	if k == pageUnavailable {
		v.retryAfter = retryAway
	}
	return v
}

// sessionView is the page that shows the state of a session.
func (p *pages) sessionView(vis visitor, s sessions.Status, t sessions.Token) view {
	k := kindOf(s.Outcome)
	switch {
	case k == pageAsk && p.closed(s):
		k = pageClosed
	case k == pageAsk && len(p.networksOf(s.Test)) == 0:
		k = pageUntestable
	}
	v := p.view(vis, k)
	v.Test, v.token = s.Test, t.Reveal()
	v.values["asker"], v.values["Asker"] = p.requester(vis, s.Account)
	v.values["network"] = p.networkName(vis.words, s.Network)
	if a, ok := p.accounts.Requester(s.Account); ok {
		v.addBranding(a)
		if s.State != sessions.Pending {
			v.Back = a.ReturnURL
		}
	}
	switch s.State {
	case sessions.Pending:
		if k == pageAsk {
			p.ask(&v, s.Session, t)
		}
	case sessions.Verified, sessions.Failed:
		v.Facts = facts(s.Session)
	case sessions.Canceled, sessions.Expired: // whose it was no longer matters
	}
	return v
}

func kindOf(o sessions.Outcome) kind {
	switch o.State {
	case sessions.Pending:
		return pageAsk
	case sessions.Verified:
		return pageVerified
	case sessions.Canceled:
		return pageCanceled
	case sessions.Expired:
		return pageExpired
	default:
		switch o.Reason {
		case sessions.Refused:
			return refusedPage(o.Rule)
		case sessions.Unconfirmed:
			return pageUnconfirmed
		default:
			return pageDeclined
		}
	}
}

// ask adds what the question and its buttons need.
func (p *pages) ask(v *view, s sessions.Session, t sessions.Token) {
	v.Session = t.Reveal()
	v.Facts = facts(s)
	networks := p.networksOf(s.Test)
	v.formAction = p.formAction(networks)
	v.Lead, v.Gives = "ask.lead.many", s.Level == proof.Code
	if len(networks) == 1 {
		v.Lead = "ask.lead.one"
	}
	for _, n := range networks {
		v.Buttons = append(v.Buttons, button{
			Network: n.ID(), Name: n.Name(), Away: n.Available() != nil, Plain: true,
		})
	}
	v.Buttons[max(slices.IndexFunc(v.Buttons, func(b button) bool { return !b.Away }), 0)].Plain = false
	v.values["network"] = networks[0].Name()
	p.addExpiry(v, s)
}

// addExpiry says until when the session can be completed.
func (p *pages) addExpiry(v *view, s sessions.Session) {
	v.Expires = s.ExpiresAt.UTC().Format(time.RFC3339)
	// a page that is left open says nothing that turns untrue
	v.values["until"] = s.ExpiresAt.UTC().Format("15:04")
	v.Left = "ask.left.last"
	if minutes := minutesLeft(s.ExpiresAt.Sub(p.now())); minutes > 0 {
		v.Left, v.count = "ask.left.minutes", minutes
	}
}

// addNotice puts a notice on the page of a pending session. What the address says is only ever looked up,
// never shown.
func (p *pages) addNotice(v *view, note notice, network string, again string) {
	n, known := notices[note]
	if !known || v.Kind != pageAsk.name {
		return
	}
	v.Note = "note." + string(note)
	v.values["network"] = p.networkName(v.words, network)
	if len(v.Buttons) == 1 {
		v.values["network"] = v.Buttons[0].Name
	}
	if n.again {
		v.Again = again
	}
}

// minutesLeft counts whole minutes, rounded to the nearest, so that a new link shows 10; 0 when less than one
// is left.
func minutesLeft(d time.Duration) int {
	if d < time.Minute {
		return 0
	}
	return int(d.Round(time.Minute) / time.Minute)
}

func facts(s sessions.Session) []fact {
	rows := []fact{{"ask.account", s.PlatformUserID}, {"ask.where", s.Platform}}
	if s.GuildID != "" {
		rows = append(rows, fact{"ask.group", s.GuildID})
	}
	return rows
}

// closed reports whether nobody may sign in for a session that is pending, since its account is out of
// service.
func (p *pages) closed(s sessions.Status) bool {
	a, _ := p.accounts.Requester(s.Account)
	return s.State == sessions.Pending && a.Closed
}

// requester returns the name of an account inside a sentence and at its start.
func (p *pages) requester(vis visitor, account string) (inside, atStart string) {
	a, _ := p.accounts.Requester(account)
	return named(vis, a)
}

func named(vis visitor, a Requester) (inside, atStart string) {
	if a.Name != "" {
		return a.Name, a.Name
	}
	return vis.words.word("asker.unknown"), vis.words.word("Asker.unknown")
}

func (p *pages) networkName(words *locale, id string) string {
	for _, n := range slices.Concat(p.known, p.test) {
		if n.ID() == id {
			return n.Name()
		}
	}
	return words.word("network.unknown")
}

// refusedPages say to the user which rule refused, and what to do. Lists are distinguished for
// nobody: to be on one and not to be on the other read the same, so that nobody learns what others have
// entered about them.
var refusedPages = map[sessionfailure.Rule]kind{
	sessionfailure.RuleSubjectMatch: pageRefused, sessionfailure.RulePlatformAccount: pageRefused,
	sessionfailure.RuleEmailDomains: {"refused_email", http.StatusOK, toneBad},
	sessionfailure.RuleAccountAge:   {"refused_age", http.StatusOK, toneBad},
	sessionfailure.RuleGroups:       {"refused_groups", http.StatusOK, toneBad},
	sessionfailure.RuleAllow:        {"refused_list", http.StatusOK, toneBad},
	sessionfailure.RuleDeny:         {"refused_list", http.StatusOK, toneBad},
	sessionfailure.RuleOneIdentity:  {"refused_held", http.StatusOK, toneBad},
}

// refusedPage is the page of a rule; records of builds that had one rule alone name none.
func refusedPage(r sessionfailure.Rule) kind {
	if k, ok := refusedPages[r]; ok {
		return k
	}
	return pageRefused
}
