package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/page"
	"verifyd/natsconf"
)

// loginCookie is the cookie's name. Where it can be, it is a __Host- one, which browsers take only from this very host over https.
func (h *Handler) loginCookie() string {
	switch {
	case !h.https:
		return "verifyd_login"
	case h.prefix != "":
		return "__Secure-verifyd_login" // a path of its own keeps it from the neighbours
	default:
		return "__Host-verifyd_login"
	}
}

func (h *Handler) setLoginCookie(w http.ResponseWriter, token string, maxAge int) {
	path := "/"
	if h.prefix != "" {
		path = h.prefix + pathRoot
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: h.loginCookie(), Value: token, Path: path, MaxAge: maxAge, Secure: h.https, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // Strict would look logged out to who follows a link from a chat
	})
}

// visit is who makes a request, and in which account.
type visit struct {
	login    logins.Login
	account  account.Account
	role     account.Role
	accounts []account.Account // all that the person is a member of, by name
	operator bool
}

// may says whether the visitor has the right to an action.
func (v visit) may(a account.Action) bool { return v.role.May(a) }

// actor is the visitor as the audit log names them.
func (v visit) actor() account.Actor {
	if v.login.LinkID != "" {
		return account.Link{ID: v.login.LinkID, Account: v.login.Account, Role: v.login.Role}.Actor()
	}
	m, _ := v.account.Member(v.login.Network, v.login.Subject)
	return m.Actor()
}

// who is what the visitor is called.
func (v visit) who() string {
	switch {
	case v.login.LinkID != "":
		return "Login link"
	case v.login.Name != "":
		return v.login.Name
	default:
		return v.login.Subject
	}
}

// errNoAccount: somebody is logged in who is in no account.
var errNoAccount = errors.New("in no account")

// cookiesMost bounds how many cookies of one request the store is asked about: whoever is nobody could bring hundreds.
const cookiesMost = 8

// knock finds out who makes a request. Its errors are logins.ErrNobody and natsconf's.
func (h *Handler) knock(ctx context.Context, r *http.Request) (logins.Login, error) {
	found := r.CookiesNamed(h.loginCookie())
	for _, c := range found[:min(len(found), cookiesMost)] { // more than one where a neighbouring host has set its own
		l, err := h.Logins.Find(ctx, c.Value)
		if err == nil {
			l, err = h.asGranted(ctx, l)
		}
		if !errors.Is(err, logins.ErrNobody) {
			return l, err
		}
	}
	return logins.Login{}, logins.ErrNobody
}

// asGranted gives a login that came by a login link into an account as what the link gives there now: what the login says of itself an edge's
// credential could write. isOperator asks for an operator's, which leads into no account. The error is logins.ErrNobody where the link gives
// nothing.
func (h *Handler) asGranted(ctx context.Context, l logins.Login) (logins.Login, error) {
	switch {
	case l.Operator && l.Account != "":
		return logins.Login{}, logins.ErrNobody
	case l.Operator, l.LinkID == "":
		return l, nil
	}
	g, err := h.Accounts.LoginLinkGrant(ctx, l.Account, l.LinkID)
	if errors.Is(err, account.ErrNoLink) {
		err = logins.ErrNobody
	}
	l.Account, l.Role = g.Account, g.Role
	return l, err
}

// enter finds out who makes a request and in which account: the one that was chosen, or the first. Beside knock's its error is
// errNoAccount, with the login.
func (h *Handler) enter(ctx context.Context, r *http.Request) (visit, error) {
	l, err := h.knock(ctx, r)
	if err != nil {
		return visit{}, err
	}
	v := visit{login: l}
	if v.operator, err = h.isOperator(ctx, l); err != nil {
		return v, err
	}
	if l.LinkID != "" {
		v.account, err = h.Accounts.Account(ctx, l.Account)
		if errors.Is(err, account.ErrNoAccount) {
			return v, errNoAccount
		}
		v.role, v.accounts = l.Role, []account.Account{v.account}
		return v, err
	}
	v.accounts = h.Directory.AccountsOf(l.Network, l.Subject)
	slices.SortFunc(v.accounts, func(a, b account.Account) int { return strings.Compare(a.Name, b.Name) })
	choices := v.accounts
	if l.Account != "" { // the directory may not know it yet
		choices = append([]account.Account{{ID: l.Account}}, choices...)
	}
	for _, c := range choices {
		a, err := h.Accounts.Account(ctx, c.ID) // as it stands now, whatever the directory shows
		if errors.Is(err, account.ErrNoAccount) {
			continue
		}
		if err != nil {
			return v, err
		}
		if m, ok := a.Member(l.Network, l.Subject); ok {
			v.account, v.role = a, m.Role
			if !slices.ContainsFunc(v.accounts, func(o account.Account) bool { return o.ID == a.ID }) {
				v.accounts = append(v.accounts, a)
			}
			return v, nil
		}
	}
	return v, errNoAccount
}

// room is a page or a change of a visitor.
type room func(w http.ResponseWriter, r *http.Request, v visit)

// open lets visitors with the right to an action into a page.
func (h *Handler) open(action account.Action, next room) http.Handler {
	return page.Guard(h.https, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := within(r)
		defer cancel()
		v, err := h.enter(ctx, r)
		if err != nil {
			h.turnAway(w, r, v, err)
			return
		}
		edge.LineOf(r.Context()).Account = v.account.ID
		if !v.may(action) {
			h.forbidden(w, v, action)
			return
		}
		next(w, r, v)
	})
}

// act is open for changes: a form of this site, drawn for the account that is looked at.
func (h *Handler) act(action account.Action, next room) http.Handler {
	return h.posted(h.open(action, func(w http.ResponseWriter, r *http.Request, v visit) {
		if page.Single(r.PostForm, "account") != v.account.ID {
			h.drawProblem(w, &v, problemOtherAccount)
			return
		}
		next(w, r, v)
	}))
}

// posted refuses forms of other sites and reads the form.
func (h *Handler) posted(next http.Handler) http.Handler {
	return page.Guard(h.https, func(w http.ResponseWriter, r *http.Request) {
		if err := h.csrf.Check(r); err != nil {
			h.Log.Info().Err(err).Msg("a form of the dashboard was refused")
			h.drawProblem(w, nil, problemForeign)
			return
		}
		if status := page.ReadForm(w, r, formMostBytes); status != 0 {
			h.drawProblem(w, nil, problemMalformed.with(status))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// formMostBytes bounds a form: a name, an address of a callback and a few choices.
const formMostBytes = 16 << 10

// turnAway answers for who is not let in: to the login, to the account they do not have yet, or with what is wrong.
func (h *Handler) turnAway(w http.ResponseWriter, r *http.Request, v visit, err error) {
	switch {
	case errors.Is(err, logins.ErrNobody) && r.Method == http.MethodPost:
		h.flash(w, flashLoginFirst)
		page.SeeOther(w, h.prefix+pathLogin)
	case errors.Is(err, logins.ErrNobody):
		to := h.prefix + pathLogin
		if next := strings.TrimPrefix(r.URL.RequestURI(), h.prefix); next != pathRoot && safeNext(next) == next {
			to += "?" + query("next", next)
		}
		page.SeeOther(w, to)
	case errors.Is(err, errNoAccount) && v.operator:
		page.SeeOther(w, h.prefix+pathOperator)
	case errors.Is(err, errNoAccount):
		page.SeeOther(w, h.prefix+pathNewAccount)
	default:
		h.fail(w, r, &v, err)
	}
}

// fail answers for an error of the store.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	if v != nil && v.account.ID == "" {
		v = nil
	}
	switch {
	case errors.Is(err, account.ErrNotAllowed):
		h.drawProblem(w, v, problemForbidden)
	case errors.Is(err, natsconf.ErrUncertain):
		edge.LineOf(r.Context()).Err = err
		h.drawProblem(w, v, problemUncertain)
	default:
		edge.LineOf(r.Context()).Err = err
		h.drawProblem(w, v, problemUnavailable)
	}
}

func (h *Handler) forbidden(w http.ResponseWriter, v visit, action account.Action) {
	h.Log.Info().Str("account", v.account.ID).Str("action", string(action)).Str("role", string(v.role)).Msg("a role was not enough")
	h.drawProblem(w, &v, problemForbidden)
}
