package signin

import (
	"net/http"
	"net/url"

	"verifyd/edge/page"
	"verifyd/sessions"
)

// Preview draws the page of a requester as its users see it, for who sets how that looks: the question, or
// the page after a verified end. It is about nobody, no session stands behind it, and its buttons do nothing.
func (h *Handler) Preview(w http.ResponseWriter, r *http.Request, a Requester, ended bool) {
	vis := h.visitor(r, page.Single(r.URL.Query(), "lang"))
	k, q := pageAsk, url.Values{}
	if ended {
		k = pageVerified
		q.Set("end", "yes")
	}
	v := h.view(vis, k)
	v.Preview, v.Locales = true, h.choices(vis, q)
	v.Sign = newSign(a)
	v.values["asker"], v.values["Asker"] = named(vis, a)
	v.values["network"] = h.networks[0].Name()
	s := sessions.Session{
		Platform: "my app", PlatformUserID: "sailor_42", ExpiresAt: h.now().Add(sessions.Lifetime),
	}
	if ended {
		v.Facts, v.Back = facts(s), a.ReturnURL
	} else {
		h.ask(&v, s, "")
		v.formAction = "'none'"
	}
	h.draw(w, v)
}
