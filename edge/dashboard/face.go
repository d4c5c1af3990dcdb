package dashboard

import (
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge/page"
)

// The page on which an account's owners set what its users see: /dashboard/sign-in-page. Its fields have the names of an
// *account.InputError.
const (
	fieldColour        = "colour"
	fieldReturnURL     = "return_url"
	fieldReturnOrigins = "return_origins" // one a line
)

// showFace answers GET /dashboard/sign-in-page.
func (h *Handler) showFace(w http.ResponseWriter, r *http.Request, v visit) {
	h.drawFace(w, r, v, &form{})
}

// drawFace draws the page with a form that was sent, and the others as they stand.
func (h *Handler) drawFace(w http.ResponseWriter, r *http.Request, v visit, f *form) {
	values := url.Values{
		fieldColour: {v.account.Colour}, fieldReturnURL: {v.account.ReturnURL}, fieldReturnOrigins: {strings.Join(v.account.ReturnOrigins, "\n")},
	}
	for name := range values {
		if f.values.Has(name) {
			values.Set(name, f.text(name))
		}
	}
	f.values = values
	status := http.StatusOK
	if !f.ok() {
		status = http.StatusUnprocessableEntity
	}
	h.draw(w, view{page: "face", Title: "Sign-in page", Nav: "settings", visit: &v, Flash: h.takeFlash(w, r), Form: f, status: status})
}

// preview answers GET /dashboard/sign-in-page/preview, with ?end=yes the page after the end.
func (h *Handler) preview(w http.ResponseWriter, r *http.Request, v visit) {
	if h.Preview == nil {
		h.drawProblem(w, &v, problemNotFound)
		return
	}
	h.Preview(w, r, v.account, page.Single(r.URL.Query(), "end") != "")
}

// setColour answers POST /dashboard/sign-in-page/colour.
func (h *Handler) setColour(w http.ResponseWriter, r *http.Request, v visit) {
	h.changeFace(w, r, v, func(f *form) error {
		ctx, cancel := within(r)
		defer cancel()
		return h.Accounts.SetColour(ctx, v.actor(), v.account.ID, strings.TrimSpace(f.text(fieldColour)))
	})
}

// setReturnURL answers POST /dashboard/sign-in-page/return-url.
func (h *Handler) setReturnURL(w http.ResponseWriter, r *http.Request, v visit) {
	h.changeFace(w, r, v, func(f *form) error {
		ctx, cancel := within(r)
		defer cancel()
		return h.Accounts.SetReturnURL(ctx, v.actor(), v.account.ID, strings.TrimSpace(f.text(fieldReturnURL)))
	})
}

// setReturnOrigins answers POST /dashboard/sign-in-page/return-origins.
func (h *Handler) setReturnOrigins(w http.ResponseWriter, r *http.Request, v visit) {
	h.changeFace(w, r, v, func(f *form) error {
		ctx, cancel := within(r)
		defer cancel()
		return h.Accounts.SetReturnOrigins(ctx, v.actor(), v.account.ID, strings.Fields(f.text(fieldReturnOrigins)))
	})
}

// changeFace makes a change, and answers with the page: with what is wrong beside the field, or with what was done.
func (h *Handler) changeFace(w http.ResponseWriter, r *http.Request, v visit, change func(*form) error) {
	f := newForm(r)
	switch err := change(f); {
	case err == nil:
		h.done(w, flashFaceSet, pathFace)
	case f.take(err):
		h.drawFace(w, r, v, f)
	default:
		h.fail(w, r, &v, err)
	}
}

// Preview says whether the sign-in page can be looked at.
func (d drawn) Preview() bool { return d.h.Preview != nil }
