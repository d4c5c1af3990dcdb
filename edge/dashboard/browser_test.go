package dashboard_test

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"testing"

	"verifyd/edge/browsertest"
)

// answer is the answer to a request.
type answer = browsertest.Answer

// browser is a visitor's.
type browser struct {
	*browsertest.Browser

	t testing.TB
	r *rig
}

func (r *rig) browser() *browser {
	r.t.Helper()
	var roots *x509.CertPool
	if r.setup.tls {
		roots = r.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	return &browser{browsertest.New(r.t, r.base, roots), r.t, r}
}

// post sends a form of pairs of names and values.
func (b *browser) post(address string, pairs ...string) answer {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.Post(address, form)
}

// login logs in at the dev network as somebody, and returns the answer to the return.
func (b *browser) login(subject string, next ...string) answer {
	b.t.Helper()
	return b.Get(b.back(subject, append(next, "")[0]))
}

// again signs in again at the dev network, as the page that asks for it does.
func (b *browser) again(subject, next string) answer {
	b.t.Helper()
	return b.Get(b.back(subject, next, "again", "yes"))
}

// back goes through the dev network, and returns its return. More is for the form that leads there.
func (b *browser) back(subject, next string, more ...string) string {
	b.t.Helper()
	authorize := b.To(b.post("/dashboard/login", append(more, "network", "example", "next", next)...))
	u, err := url.Parse(authorize)
	if err != nil {
		b.t.Fatal(err)
	}
	pairs := []string{"subject", subject, "action", "sign-in"}
	for name, values := range u.Query() {
		pairs = append(pairs, name, values[0])
	}
	return b.To(b.post(b.r.dev.Issuer()+"/authorize", pairs...))
}

// declines goes to the dev network and comes back without a sign-in. More is for the form that leads there.
func (b *browser) declines(next string, more ...string) answer {
	b.t.Helper()
	u, err := url.Parse(b.back("olga", next, more...))
	if err != nil {
		b.t.Fatal(err)
	}
	q := u.Query()
	q.Del("code")
	q.Set("error", "access_denied")
	u.RawQuery = q.Encode()
	return b.Get(u.String())
}

// as is a browser that is logged in.
func (r *rig) as(subject string) *browser {
	r.t.Helper()
	b := r.browser()
	b.To(b.login(subject))
	return b
}
