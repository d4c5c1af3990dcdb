package signin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"verifyd/sessions"
	sessionfailure "verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// replyLanguages is the list of languages where an address asks for it, with lang given and empty. Any other
// page gets the way there. keeps is what stays in the address when the language changes.
func (p *pages) replyLanguages(vis *visit, asked, keeps url.Values) *reply {
	address := "?" // relative: the same page again
	if len(keeps) > 0 {
		address += keeps.Encode() + "&"
	}
	if !slices.Equal(asked["lang"], []string{""}) {
		vis.languages = address + "lang="
		if vis.chosen != "" {
			vis.languages += "&from=" + vis.chosen
		}
		return nil
	}
	v := p.view(vis, pageLanguages)
	v.Choices = p.locales.choices(vis.words, address)
	return &reply{page: v}
}

// view starts the view of a page.
func (p *pages) view(vis *visit, k kind) view {
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

// sessionView is the page that shows the state of a visit's session.
func (p *pages) sessionView(vis *visit) view {
	s := vis.status
	k := kindOf(s.Outcome)
	switch {
	case k == pageAsk && p.closed(s):
		k = pageClosed
	case k == pageAsk && len(p.networksOf(s.Test)) == 0:
		k = pageUntestable
	}
	v := p.view(vis, k)
	v.Test, v.token = s.Test, vis.token.Reveal()
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
			p.ask(&v, s.Session, vis.token)
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
	rows := []fact{
		{"ask.account", s.DisplayName, s.PlatformUserID},
		{"ask.where", "", cmp.Or(knownPlatforms[strings.ToLower(s.Platform)], s.Platform)},
	}
	if s.GroupName+s.GuildID != "" {
		rows = append(rows, fact{"ask.group", s.GroupName, s.GuildID})
	}
	return rows
}

// knownPlatforms are platforms as people write them.
var knownPlatforms = map[string]string{
	"discord": "Discord", "github": "GitHub", "irc": "IRC", "mastodon": "Mastodon", "matrix": "Matrix",
	"minecraft": "Minecraft", "mumble": "Mumble", "reddit": "Reddit", "roblox": "Roblox", "signal": "Signal",
	"slack": "Slack", "steam": "Steam", "teams": "Microsoft Teams", "teamspeak": "TeamSpeak",
	"telegram": "Telegram", "twitch": "Twitch", "whatsapp": "WhatsApp", "xmpp": "XMPP", "youtube": "YouTube",
	"zulip": "Zulip",
}

// closed reports whether nobody may sign in for a session that is pending, since its account is out of
// service.
func (p *pages) closed(s sessions.Status) bool {
	a, _ := p.accounts.Requester(s.Account)
	return s.State == sessions.Pending && a.Closed
}

// requester returns the name of an account inside a sentence and at its start.
func (p *pages) requester(vis *visit, account string) (inside, atStart string) {
	a, _ := p.accounts.Requester(account)
	return named(vis, a)
}

func named(vis *visit, a Requester) (inside, atStart string) {
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
