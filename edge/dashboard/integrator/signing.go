package integrator

import (
	"context"
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
)

// signingPages are the page of the callback signing secret and its changes.
type signingPages struct{ deps }

type signingData struct {
	Current  account.Secret
	Old      *account.Secret     // that signs as well until the overlap ends
	Secrets  []string            // if requested, the current one first
	Public   []signing.PublicKey // the current one first
	Snippets []Snippet
}

// parcelSigning is what a POST of this page passes to the GET after it.
type parcelSigning struct {
	Secrets []string `json:"secrets,omitempty"`
}

// showSigning answers GET /dashboard/signing; with ?show=… it shows, once, what a POST made.
func (h signingPages) showSigning(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	var p parcelSigning
	if name := page.Single(r.URL.Query(), "show"); name != "" {
		switch err := h.Logins.Take(ctx, v.Login, name, &p); {
		case errors.Is(err, logins.ErrNoParcel):
			h.Done(w, flashOnce, paths.Signing)
			return
		case err != nil:
			h.Fail(w, r, &v, err)
			return
		}
	}
	h.drawSigning(w, r, v, p, nil)
}

func (h signingPages) drawSigning(w http.ResponseWriter, r *http.Request, v site.Visit, p parcelSigning,
	f *form.Form) {
	d := signingData{
		Secrets: p.Secrets, Public: h.Signing.Public(v.Account, h.Now()), Snippets: h.Snippets,
	}
	for i, s := range v.Account.Signing(h.Now()) {
		s.Value = "" // the page does not need it unless it was requested
		if i == 0 {
			d.Current = s
		} else {
			d.Old = &s
		}
	}
	status := http.StatusOK
	if f != nil && !f.OK() {
		status = http.StatusUnprocessableEntity
	}
	h.Draw(w, site.View{
		Page: "signing", Title: "Signing", Nav: "signing", Visit: &v, Flash: h.TakeFlash(w, r),
		Form: f, Status: status, Data: d,
	})
}

// reveal answers POST /dashboard/signing/reveal.
func (h signingPages) reveal(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	secrets, err := h.Accounts.RevealSecrets(ctx, v.Actor(), v.Account.ID)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	var p parcelSigning
	for _, s := range secrets {
		p.Secrets = append(p.Secrets, s.Value)
	}
	h.handSigning(ctx, w, r, v, p)
}

// handSigning leads to the page, which shows a parcel once.
func (h signingPages) handSigning(ctx context.Context, w http.ResponseWriter, r *http.Request, v site.Visit,
	p parcelSigning) {
	name, err := h.Logins.Hand(ctx, v.Login, p)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	page.SeeOther(w, h.Prefix+paths.Signing+"?"+form.Query("show", name))
}

// rotate answers POST /dashboard/signing/rotate.
func (h signingPages) rotate(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	overlap, known := graces[f.Text("overlap")]
	if !known {
		f.Wrong("overlap", "Choose one of these.")
		h.drawSigning(w, r, v, parcelSigning{}, f)
		return
	}
	_, err := h.Accounts.RotateSecret(ctx, v.Actor(), v.Account.ID, overlap)
	switch {
	case err == nil:
		h.Done(w, flashRotated, paths.Signing)
	case errors.Is(err, account.ErrRotating):
		h.Done(w, flashRotating, paths.Signing)
	default:
		h.Fail(w, r, &v, err)
	}
}

// endOverlap answers POST /dashboard/signing/end.
func (h signingPages) endOverlap(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	_, err := h.Accounts.EndRotation(ctx, v.Actor(), v.Account.ID)
	switch {
	case err == nil:
		h.Done(w, flashRotationEnded, paths.Signing)
	case errors.Is(err, account.ErrNotRotating):
		h.Done(w, flashNotRotating, paths.Signing)
	default:
		h.Fail(w, r, &v, err)
	}
}
