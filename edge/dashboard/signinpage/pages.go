package signinpage

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/site"
	"verifyd/sessions/proof"
)

// The page on which an account's owners set what its users see: /dashboard/sign-in-page. Its fields have the
// names of an *input.Error.
const (
	fieldColour        = "colour"
	fieldReturnURL     = "return_url"
	fieldReturnOrigins = "return_origins" // one a line
	fieldBinding       = "binding"
	fieldMaxUsers      = "max_users"
	fieldLogo          = "logo"
	fieldNoLogo        = "no_logo"
)

type pageData struct {
	Colours []colour
	Logo    *logoView // nil: none
	States  []state   // none: the sign-in page has no preview
	Users   []string  // how many users one identity may verify
}

// show answers GET /dashboard/sign-in-page. The colours in its address are previewed, not saved.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, v site.Visit) {
	f := form.Of(r.URL.Query())
	checked(f)
	h.draw(w, r, v, f, http.StatusOK)
}

// draw renders the page with a form that was sent, and the others as they are stored.
func (h *Handler) draw(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form, status int) {
	d := pageData{
		Colours: colours(v.Account, f), Logo: h.logo(v.Account), States: h.states(f.Values),
		Users: strings.Fields("1 2 3 5 10"),
	}
	values := url.Values{
		fieldReturnURL: {v.Account.ReturnURL}, fieldReturnOrigins: {
			strings.Join(v.Account.ReturnOrigins, "\n"),
		}, fieldBinding: {string(v.Account.Level)},
		fieldMaxUsers: {strconv.Itoa(v.Account.MaxUsers)},
	}
	for name := range values {
		if f.Values.Has(name) {
			values.Set(name, f.Text(name))
		}
	}
	f.Values = values
	h.Draw(w, site.View{
		Page: "branding", Title: "Sign-in page", Nav: "settings", Visit: &v, Flash: h.TakeFlash(w, r),
		Form: f, Status: status, Frames: true, Data: d,
	})
}

// setReturnURL answers POST /dashboard/sign-in-page/return-url.
func (h *Handler) setReturnURL(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := h.Within(r)
		defer cancel()
		return h.Accounts.SetReturnURL(ctx, v.Actor(), v.Account.ID,
			strings.TrimSpace(f.Text(fieldReturnURL)))
	})
}

// setReturnOrigins answers POST /dashboard/sign-in-page/return-origins.
func (h *Handler) setReturnOrigins(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := h.Within(r)
		defer cancel()
		return h.Accounts.SetReturnOrigins(ctx, v.Actor(), v.Account.ID,
			strings.Fields(f.Text(fieldReturnOrigins)))
	})
}

// setBinding answers POST /dashboard/sign-in-page/binding.
func (h *Handler) setBinding(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := h.Within(r)
		defer cancel()
		level := proof.Level(f.Text(fieldBinding))
		maxUsers, err := strconv.Atoi(cmp.Or(f.Text(fieldMaxUsers), "0"))
		if err != nil {
			return &input.Error{Field: fieldMaxUsers, Detail: "it is not a number"}
		}
		return h.Accounts.SetBinding(ctx, v.Actor(), v.Account.ID,
			accountstore.Binding{Level: &level, MaxUsers: &maxUsers})
	})
}

// change makes a change, and answers with the page: with what is wrong at the field, or with what was done.
func (h *Handler) change(w http.ResponseWriter, r *http.Request, v site.Visit,
	change func(*form.Form) error) {
	f := form.New(r)
	switch err := change(f); {
	case err == nil:
		h.Done(w, flashSet, pathPage)
	case f.Take(err):
		h.draw(w, r, v, f, http.StatusUnprocessableEntity)
	default:
		h.Fail(w, r, &v, err)
	}
}
