package signin

import (
	"html/template"
	"net/http"

	"verifyd/edge/page"
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

// fact is one row of what is being verified: a name, which may be empty, above what it names. The label is a
// text's key.
type fact struct{ Label, Name, Value string }

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
		rows[i] = row{f.Label, page.Room(f.Name)+page.Room(f.Value) > roomShown, f.text()}
	}
	return rows
}

// text draws the name above what it names; a name that says nothing else is left out.
func (f fact) text() template.HTML {
	switch {
	case f.Name == f.Value || f.Name == "":
		return page.Typed(f.Value)
	case f.Value == "":
		return page.Typed(f.Name)
	default:
		return page.Typed(f.Name) + "<small>" + page.Typed(f.Value) + "</small>"
	}
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
	refresh    int                      // seconds until the browser looks again by itself; 0: it does not
	status     int
	formAction string
}

// inApp is what the page says in an app's own browser: some providers refuse to sign anybody in there, since
// the app could look over the user's shoulder (RFC 8252 §8.12). Signing in stays possible.
type inApp struct {
	App  string       // its name; empty if it does not say
	Open template.URL // leads to the system's browser; empty if the app has no such address
	Code code
}
