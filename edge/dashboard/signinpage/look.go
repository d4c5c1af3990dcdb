package signinpage

import (
	"context"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/branding/logo"
	"verifyd/edge/account/input"
	looks "verifyd/edge/branding"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
)

// A colour field always has a value, so a checkbox next to it enables it.
const own = "_own"

// colour is a field for one of an account's colours.
type colour struct {
	form.Field

	Own bool // the account has one of its own, or will have
}

// swatch is one of the colours that can be set.
type swatch struct {
	name, label, hint string
	standard          string // what the picker starts with
	of                func(*account.Account) *string
}

var swatches = []swatch{
	{fieldColour, "Sign", "The background of the first letter of the account’s name, if there is no logo.",
		"#1f5fd0",
		func(a *account.Account) *string { return &a.Colour }},
	{branding.Button, "Main button",
		"On light and dark pages. Its text is dark or white, whichever is easier to read. Without it: as " +
			"links.",
		"#1f5fd0", func(a *account.Account) *string { return &a.Branding.Button }},
	{branding.Accent, "Links on light pages", "Must stand out from a page that is nearly white.", "#1f5fd0",
		func(a *account.Account) *string { return &a.Branding.Accent }},
	{branding.AccentDark, "Links on dark pages", "Must stand out from a page that is nearly black.",
		"#7aa7ff",
		func(a *account.Account) *string { return &a.Branding.AccentDark }},
}

// chosen returns the colour that a form has for a swatch; false if the form does not have the field.
func (s swatch) chosen(f url.Values) (value string, given bool) {
	if !f.Has(s.name) {
		return "", false
	}
	if page.Single(f, s.name+own) == "" {
		return "", true
	}
	return strings.TrimSpace(page.Single(f, s.name)), true
}

// colours returns the fields, with the values of the form, or else those of the account.
func colours(a account.Account, f *form.Form) (fields []colour) {
	for _, s := range swatches {
		c := colour{Field: f.Field(s.name, s.label, s.hint)}
		value, given := s.chosen(f.Values)
		if !given {
			value = *s.of(&a)
		}
		c.Own, c.Value = value != "", value
		if !branding.IsColour(c.Value) {
			c.Value = s.standard
		}
		fields = append(fields, c)
	}
	return fields
}

// checked notes at the fields what is wrong with colours that are only previewed.
func checked(f *form.Form) {
	for _, s := range swatches {
		value, _ := s.chosen(f.Values)
		if _, err := branding.Colour(s.name, value); err != nil && s.name != fieldColour {
			f.Wrong(s.name, err.Error())
		}
	}
}

// lookedAt returns an account with the colours of an address for the preview. An invalid colour is ignored.
func lookedAt(a account.Account, q url.Values) account.Account {
	for _, s := range swatches {
		value, given := s.chosen(q)
		if !given {
			continue
		}
		check := func(v string) (string, error) { return branding.Colour(s.name, v) }
		if s.name == fieldColour {
			check = input.Colour
		}
		if value, err := check(value); err == nil {
			*s.of(&a) = value
		}
	}
	return a
}

// state is one state of the sign-in page, and where it is drawn.
type state struct{ Name, Address string }

var stateNames = map[string]string{
	"ask": "The question", "confirm": "The code", "verified": "Verified", "declined": "Declined",
	"refused": "Refused", "unconfirmed": "Wrong codes", "expired": "Expired", "canceled": "Canceled",
	"elsewhere": "Another browser", "closed": "Out of service",
}

// states returns all states, with the previewed colours of a form.
func (h *Handler) states(f url.Values) (all []state) {
	if h.config.Draw == nil {
		return nil
	}
	q := url.Values{}
	for _, s := range swatches {
		if f.Has(s.name) {
			q[s.name], q[s.name+own] = f[s.name], f[s.name+own]
		}
	}
	for _, name := range h.config.States {
		q.Set("state", name)
		label := stateNames[name]
		if label == "" {
			label = name
		}
		all = append(all, state{label, h.Prefix + pathPreview + "?" + q.Encode()})
	}
	return all
}

// preview answers GET /dashboard/sign-in-page/preview, with ?state= one of the page's states.
func (h *Handler) preview(w http.ResponseWriter, r *http.Request, v site.Visit) {
	if h.config.Draw == nil {
		h.DrawProblem(w, &v, site.ProblemNotFound)
		return
	}
	q := r.URL.Query()
	h.config.Draw(w, r, lookedAt(v.Account, q), page.Single(q, "state"))
}

// setLook answers POST /dashboard/sign-in-page/look: the whole appearance, or nothing.
func (h *Handler) setLook(w http.ResponseWriter, r *http.Request, v site.Visit) {
	file := page.File(r, fieldLogo)
	if file != nil {
		if d := h.rate.Allow(account.Key{ID: v.Account.ID}, h.Now()); !d.Allowed {
			w.Header().Set("Retry-After", strconv.FormatInt(web.Seconds(d.RetryAfter), 10))
			h.DrawProblem(w, &v, problemTooMany)
			return
		}
	}
	h.change(w, r, v, func(f *form.Form) error {
		var to accountstore.Look
		for _, s := range swatches {
			value, given := s.chosen(f.Values)
			if !given {
				continue
			}
			*map[string]**string{
				fieldColour: &to.Colour, branding.Button: &to.Button, branding.Accent: &to.Accent,
				branding.AccentDark: &to.AccentDark,
			}[s.name] = &value
		}
		picture, err := h.picture(r.Context(), file, f)
		if err != nil {
			return err
		}
		to.Logo = picture
		ctx, cancel := h.Within(r)
		defer cancel()
		return h.Accounts.SetLook(ctx, v.Actor(), v.Account.ID, to)
	})
}

// picture returns the logo that a form uploads, or an empty one if it removes the logo; nil if it does
// neither.
func (h *Handler) picture(ctx context.Context, file *multipart.FileHeader,
	f *form.Form) (**branding.Logo, error) {
	var l *branding.Logo
	if file == nil {
		if f.Text(fieldNoLogo) == "" {
			return nil, nil //nolint:nilnil // as it is
		}
		return &l, nil
	}
	if err := logo.CheckSize(file.Size); err != nil {
		return nil, &input.Error{Field: fieldLogo, Detail: err.Error()}
	}
	release, err := h.logos.Wait(ctx, places.Request{})
	if err != nil {
		return nil, err
	}
	defer release()
	data, err := page.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if l, err = logo.Read(data); err != nil {
		return nil, &input.Error{Field: fieldLogo, Detail: err.Error()}
	}
	return &l, nil
}

// logoView is the account's logo on the page.
type logoView struct {
	Address       string
	Width, Height int // in pixels of the picture
}

func (h *Handler) logo(a account.Account) *logoView {
	path := looks.Picture(a.ID, a.Branding)
	if path == "" {
		return nil
	}
	return &logoView{h.Prefix + path, a.Branding.Logo.Width, a.Branding.Logo.Height}
}
