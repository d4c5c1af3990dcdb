package site

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/natsconf"
)

// loginCookie is the name of the cookie that has the login's token.
const loginCookie = "verifyd_login"

// SetLoginCookie sets the cookie of a login; a maxAge below 0 removes it.
func (s *Site) SetLoginCookie(w http.ResponseWriter, token string, maxAge int) {
	http.SetCookie(w, s.Cookies.New(loginCookie, token, paths.Root, maxAge))
}

// ErrNoAccount is returned for somebody who is logged in and a member of no account.
var ErrNoAccount = errors.New("in no account")

// maxCookies bounds how many cookies of one request are looked up in the store: a stranger could send
// hundreds. The second is for one that a neighbouring host has set without meaning harm.
const maxCookies = 2

// Authenticate finds out who makes a request. Its errors are logins.ErrNotLoggedIn and natsconf's.
func (s *Site) Authenticate(ctx context.Context, r *http.Request) (logins.Login, error) {
	name := s.Cookies.Name(loginCookie)
	found, most := r.CookiesNamed(name), maxCookies
	if strings.HasPrefix(name, "__Host-") { // no neighbouring host can have set its own
		most = 1
	}
	for _, c := range found[:min(len(found), most)] {
		l, err := s.Logins.Find(ctx, c.Value)
		if err == nil && l.Subject != "" && !s.leadsIn(l.Network) {
			err = logins.ErrNotLoggedIn
		}
		if err == nil {
			l, err = s.asGranted(ctx, l)
		}
		if err == nil && byHand(r) {
			if err := s.Logins.Use(ctx, l); err != nil {
				s.Log.Warn().Err(err).Msg("the use of a login is not stored")
			}
		}
		if !errors.Is(err, logins.ErrNotLoggedIn) {
			return l, err
		}
	}
	return logins.Login{}, logins.ErrNotLoggedIn
}

// byHand reports whether somebody may have opened what is asked for: not so a page that keeps itself up to
// date, which asks for no document.
func byHand(r *http.Request) bool {
	to := r.Header.Get("Sec-Fetch-Dest")
	return to == "" || to == "document"
}

// leadsIn reports whether identities of a namespace can log in here: a login ends when its network is removed
// from the settings, or when the network's id is pointed at another provider.
func (s *Site) leadsIn(namespace string) bool {
	return slices.ContainsFunc(s.Networks, func(n *network.Network) bool {
		return n.Namespace() == namespace
	})
}

// asGranted returns a login by a login link with the rights that the link grants now: what the login record
// says could have been written with an edge's credential. For an operator's link, which leads into no
// account, see IsOperator. The error is logins.ErrNotLoggedIn if the link grants nothing.
func (s *Site) asGranted(ctx context.Context, l logins.Login) (logins.Login, error) {
	switch {
	case l.Operator && l.Account != "":
		return logins.Login{}, logins.ErrNotLoggedIn
	case l.Operator, l.LinkID == "":
		return l, nil
	}
	g, err := s.Accounts.LoginLinkGrant(ctx, l.Account, l.LinkID)
	if errors.Is(err, grant.ErrNoLink) {
		err = logins.ErrNotLoggedIn
	}
	l.Account, l.Role = g.Account, g.Role
	return l, err
}

// IsOperator reports whether a visitor is an operator now. What their login recorded when it began does not
// count.
func (s *Site) IsOperator(ctx context.Context, l logins.Login) (bool, error) {
	switch {
	case l.Operator:
		return s.Accounts.IsOperatorLink(ctx, l.LinkID)
	case l.LinkID != "":
		return false, nil // a login link of an account
	}
	return s.Accounts.IsOperator(ctx, l.Network, l.Subject)
}

// Authorize finds out who makes a request and in which account: the one that was chosen, or the first. Its
// errors are those of Authenticate, and ErrNoAccount, with the login.
func (s *Site) Authorize(ctx context.Context, r *http.Request) (Visit, error) {
	l, err := s.Authenticate(ctx, r)
	if err != nil {
		return Visit{}, err
	}
	return s.visit(ctx, l)
}

// StillMay returns nil if a visitor may still take an action in the account in which they came, whichever one
// they have chosen since. It is for answers that take long; Deny answers its errors, those of Authorize and
// access.ErrNotAllowed.
func (s *Site) StillMay(r *http.Request, v Visit, action access.Action) error {
	ctx, cancel := s.Within(r)
	defer cancel()
	l, err := s.Authenticate(ctx, r)
	if err != nil {
		return err
	}
	if l.LinkID == "" { // a link leads into its own account alone
		l.Account = v.Account.ID
	}
	now, err := s.visit(ctx, l)
	if err == nil && (now.Account.ID != v.Account.ID || !now.May(action)) {
		err = access.ErrNotAllowed
	}
	return err
}

// visit finds out in which account somebody is who is logged in. One that cannot be read keeps nobody from
// their others, unless they chose it.
func (s *Site) visit(ctx context.Context, l logins.Login) (v Visit, err error) {
	v.Login = l
	if v.Operator, err = s.IsOperator(ctx, l); err != nil {
		return v, err
	}
	if l.LinkID != "" {
		v.Account, err = s.Accounts.Account(ctx, l.Account)
		if errors.Is(err, account.ErrNoAccount) {
			return v, ErrNoAccount
		}
		v.Role, v.Accounts = l.Role, []account.Account{v.Account}
		return v, err
	}
	v.Accounts = s.Members.AccountsOf(l.Network, l.Subject)
	slices.SortFunc(v.Accounts, func(a, b account.Account) int { return strings.Compare(a.Name, b.Name) })
	choices := v.Accounts
	if l.Account != "" { // the directory may not know it yet
		choices = append([]account.Account{{ID: l.Account}}, choices...)
	}
	none := ErrNoAccount
	for _, c := range choices {
		a, err := s.Accounts.Account(ctx, c.ID) // as it is now, whatever the directory shows
		if errors.Is(err, account.ErrNoAccount) {
			continue
		}
		if err != nil && (c.ID == l.Account || errors.Is(err, natsconf.ErrUnavailable)) {
			return v, err
		}
		if err != nil {
			none = err
			continue
		}
		if m, ok := a.Member(l.Network, l.Subject); ok {
			v.Account, v.Role = a, m.Role
			if !slices.ContainsFunc(v.Accounts, func(o account.Account) bool { return o.ID == a.ID }) {
				v.Accounts = append(v.Accounts, a)
			}
			return v, nil
		}
	}
	return v, none
}

// Page answers a visitor's request for a page or a change.
type Page func(w http.ResponseWriter, r *http.Request, v Visit)

// Read admits visitors who may take an action to a page.
func (s *Site) Read(action access.Action, next Page) http.Handler {
	return page.Guard(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := s.Within(r)
		defer cancel()
		v, err := s.Authorize(ctx, r)
		if err != nil {
			s.Deny(w, r, v, err)
			return
		}
		web.EventFrom(r.Context()).Account = v.Account.ID
		if !v.May(action) {
			forbidden(s, w, v, action)
			return
		}
		if r.Method == http.MethodGet { // a change renders no bar, or a page that was counted before
			if v.Unread, err = s.Notices.Unread(ctx, v.Account.ID, v.Actor()); err != nil {
				web.EventFrom(r.Context()).Err = err // the page can do without
			}
		}
		cancel() // next waits by itself, and may take long
		next(w, r, v)
	})
}

// Mutate is Read for changes: a form of this site, rendered for the selected account, within the rate of
// whoever is logged in.
func (s *Site) Mutate(action access.Action, next Page) http.Handler {
	return s.Submit(action, func(w http.ResponseWriter, r *http.Request, v Visit) {
		if !TakeChange(s, w, &v, v.Login) {
			return
		}
		if action == access.ActionSend { // which is recorded when it is done
			ctx, cancel := s.Within(r)
			err := s.Accounts.Room(ctx, v.Actor(), v.Account.ID)
			cancel()
			if err != nil {
				s.Fail(w, r, &v, err)
				return
			}
		}
		next(w, r, v)
	})
}

// Submit is Mutate without the rate, which must keep nobody from taking a right away, and from a form that
// changes nothing.
func (s *Site) Submit(action access.Action, next Page) http.Handler {
	return s.Posted(s.Read(action, func(w http.ResponseWriter, r *http.Request, v Visit) {
		if page.Single(r.PostForm, "account") != v.Account.ID {
			s.DrawProblem(w, &v, problemOtherAccount)
			return
		}
		next(w, r, v)
	}))
}

// Upload is Mutate for a form with files, of at most so many bytes with its fields, which have as many as
// other forms. It is read once the sender is known to be allowed.
func (s *Site) Upload(action access.Action, maxBytes int64, next Page) http.Handler {
	return s.own(s.Read(action, func(w http.ResponseWriter, r *http.Request, v Visit) {
		release, err := s.uploads.Acquire(v.Asks())
		if err != nil {
			w.Header().Set("Retry-After", "1")
			s.DrawProblem(w, &v, problemTooManyUploads)
			return
		}
		defer release()
		switch status := page.ReadUpload(w, r, maxBytes); {
		case status == http.StatusRequestEntityTooLarge:
			s.DrawProblem(w, &v, tooLarge("file", maxBytes))
			return
		case status != 0:
			s.DrawProblem(w, &v, ProblemMalformed.With(status))
			return
		case page.FieldBytes(r) > maxFormBytes:
			s.DrawProblem(w, &v, tooLarge("text", maxFormBytes))
			return
		}
		if page.Single(r.PostForm, "account") != v.Account.ID {
			s.DrawProblem(w, &v, problemOtherAccount)
			return
		}
		if TakeChange(s, w, &v, v.Login) {
			next(w, r, v)
		}
	}))
}

// Posted refuses forms of other sites and reads the form.
func (s *Site) Posted(next http.Handler) http.Handler {
	return s.own(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := page.ReadForm(w, r, maxFormBytes); status {
		case 0:
			next.ServeHTTP(w, r)
		case http.StatusRequestEntityTooLarge:
			s.DrawProblem(w, nil, tooLarge("form", maxFormBytes))
		default:
			s.DrawProblem(w, nil, ProblemMalformed.With(status))
		}
	}))
}

// own refuses forms of other sites.
func (s *Site) own(next http.Handler) http.Handler {
	return page.Guard(func(w http.ResponseWriter, r *http.Request) {
		if err := s.csrf.Check(r); err != nil {
			s.Log.Info().Err(err).Msg("a form of the dashboard was refused")
			s.DrawProblem(w, nil, problemForeign)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxFormBytes bounds a form: a name, an address of a callback and a few choices.
const maxFormBytes = 16 << 10

// Deny answers a visitor who is not admitted: with a redirect to the login or to a new account, or with what
// is wrong.
func (s *Site) Deny(w http.ResponseWriter, r *http.Request, v Visit, err error) {
	switch {
	case errors.Is(err, logins.ErrNotLoggedIn) && r.Method == http.MethodPost:
		s.Done(w, flashLoginFirst, paths.Login)
	case errors.Is(err, logins.ErrNotLoggedIn):
		to := s.Prefix + paths.Login
		if next := strings.TrimPrefix(r.URL.RequestURI(), s.Prefix); next != paths.Root &&
			paths.SafeNext(next) == next {
			to += "?" + form.Query("next", next)
		}
		page.SeeOther(w, to)
	case errors.Is(err, ErrNoAccount) && v.Operator:
		page.SeeOther(w, s.Prefix+paths.Operator)
	case errors.Is(err, ErrNoAccount):
		page.SeeOther(w, s.Prefix+paths.NewAccount)
	default:
		s.Fail(w, r, &v, err)
	}
}

// Fail answers for an error of the store, or of InSlot.
func (s *Site) Fail(w http.ResponseWriter, r *http.Request, v *Visit, err error) {
	if v != nil && v.Account.ID == "" {
		v = nil
	}
	switch {
	case errors.Is(err, account.ErrDisabled):
		s.DrawProblem(w, v, problemDisabled)
	case errors.Is(err, access.ErrNotAllowed):
		s.DrawProblem(w, v, ProblemForbidden)
	case errors.Is(err, access.ErrLogFull):
		s.DrawProblem(w, v, problemLogFull)
	case errors.Is(err, places.ErrNoPlace):
		w.Header().Set("Retry-After", "1")
		s.DrawProblem(w, v, problemTooManyLists)
	case errors.Is(err, natsconf.ErrUncertain):
		web.EventFrom(r.Context()).Err = err
		s.DrawProblem(w, v, ProblemUncertain)
	default:
		web.EventFrom(r.Context()).Err = err
		s.DrawProblem(w, v, problemUnavailable)
	}
}

func forbidden(s *Site, w http.ResponseWriter, v Visit, action access.Action) {
	s.Log.Info().Str("account", v.Account.ID).Str("action", string(action)).Str("role", string(v.Role)).
		Msg("a role was not enough")
	if v.Role.May(action) {
		s.DrawProblem(w, &v, problemDisabled)
		return
	}
	s.DrawProblem(w, &v, ProblemForbidden)
}
