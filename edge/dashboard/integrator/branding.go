package integrator

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
	"verifyd/edge/page"
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
)

// brandingPages are the page of what users see, and its preview.
type brandingPages struct{ deps }

type brandingData struct {
	Preview bool     // the sign-in page can be looked at
	Users   []string // how many users one identity may verify
}

// show answers GET /dashboard/sign-in-page.
func (h brandingPages) show(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.draw(w, r, v, &form.Form{})
}

// draw draws the page with a form that was sent, and the others as they stand.
func (h brandingPages) draw(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	values := url.Values{
		fieldColour: {v.Account.Colour}, fieldReturnURL: {v.Account.ReturnURL}, fieldReturnOrigins: {
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
	status := http.StatusOK
	if !f.OK() {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "branding", Title: "Sign-in page", Nav: "settings", Visit: &v, Flash: h.TakeFlash(w, r),
		Form: f, Status: status,
		Data: brandingData{Preview: h.Preview != nil, Users: strings.Fields("1 2 3 5 10")},
	})
}

// preview answers GET /dashboard/sign-in-page/preview, with ?end=yes the page after the end.
func (h brandingPages) preview(w http.ResponseWriter, r *http.Request, v site.Visit) {
	if h.Preview == nil {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return
	}
	h.Preview(w, r, v.Account, page.Single(r.URL.Query(), "end") != "")
}

// setColour answers POST /dashboard/sign-in-page/colour.
func (h brandingPages) setColour(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := site.Within(r)
		defer cancel()
		return h.Accounts.SetColour(ctx, v.Actor(), v.Account.ID, strings.TrimSpace(f.Text(fieldColour)))
	})
}

// setReturnURL answers POST /dashboard/sign-in-page/return-url.
func (h brandingPages) setReturnURL(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := site.Within(r)
		defer cancel()
		return h.Accounts.SetReturnURL(ctx, v.Actor(), v.Account.ID,
			strings.TrimSpace(f.Text(fieldReturnURL)))
	})
}

// setReturnOrigins answers POST /dashboard/sign-in-page/return-origins.
func (h brandingPages) setReturnOrigins(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := site.Within(r)
		defer cancel()
		return h.Accounts.SetReturnOrigins(ctx, v.Actor(), v.Account.ID,
			strings.Fields(f.Text(fieldReturnOrigins)))
	})
}

// setBinding answers POST /dashboard/sign-in-page/binding.
func (h brandingPages) setBinding(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.change(w, r, v, func(f *form.Form) error {
		ctx, cancel := site.Within(r)
		defer cancel()
		level := proof.Level(f.Text(fieldBinding))
		most, err := strconv.Atoi(cmp.Or(f.Text(fieldMaxUsers), "0"))
		if err != nil {
			return &input.Error{Field: fieldMaxUsers, Detail: "it is not a number"}
		}
		return h.Accounts.SetBinding(ctx, v.Actor(), v.Account.ID,
			accountstore.Binding{Level: &level, MaxUsers: &most})
	})
}

// change makes a change, and answers with the page: with what is wrong beside the field, or with what was
// done.
func (h brandingPages) change(w http.ResponseWriter, r *http.Request, v site.Visit,
	change func(*form.Form) error) {
	f := form.New(r)
	switch err := change(f); {
	case err == nil:
		h.Done(w, flashBrandingSet, pathBranding)
	case f.Take(err):
		h.draw(w, r, v, f)
	default:
		h.Fail(w, r, &v, err)
	}
}
