package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// user is a person with a browser, as far as requests and cookies go. It knows the fields of the service's
// forms; those of the provider come with the redirect to it.
type user struct {
	service  *Conn // the integrator uses it too
	provider *Conn
}

// newUser returns a user of the service at an address, who signs in at the dev network with this issuer, over
// TLS.
func newUser(service, issuer string, config *tls.Config) *user {
	at, _ := url.Parse(issuer) // the dev network's own address parses
	return &user{service: NewConn(service), provider: NewTLSConn(at.Host, config)}
}

func (u *user) close() {
	u.service.Close()
	u.provider.Close()
}

// Waits are a user's waiting times in one walk: for the answers, and then for the callback.
type Waits struct {
	Page, Press, Return, Outcome time.Duration

	// Receipt is the time from the deciding request, the return, to the arrival of the callback.
	Receipt time.Duration
	// PageBytes is the length of the first page.
	PageBytes int
}

const (
	formHeader = "Content-Type: application/x-www-form-urlencoded\r\n"
	// VerifiedHeading is what a user reads at the end.
	VerifiedHeading = "You are verified"
)

// signIn goes from the service's page to the one that shows the outcome, and returns when the provider
// redirected back.
func (u *user) signIn(ctx context.Context, token string, w *Waits) (returned time.Time, err error) {
	began := time.Now()
	opened, err := u.expect(ctx, u.service, http.StatusOK, http.MethodGet, "/?session="+token, "", "")
	if err != nil {
		return returned, fmt.Errorf("open the page: %w", err)
	}
	w.Page, w.PageBytes = time.Since(began), len(opened.Body)
	press := url.Values{"session": {token}, "action": {"continue"}, "network": {"default"}}.Encode()
	began = time.Now()
	a, err := u.expect(ctx, u.service, http.StatusSeeOther, http.MethodPost, "/signin",
		formHeader+"Cookie: "+opened.Cookie+"\r\n", press)
	if err != nil {
		return returned, fmt.Errorf("press Continue: %w", err)
	}
	w.Press = time.Since(began)
	back, err := u.atProvider(ctx, a.Location)
	if err != nil {
		return returned, err
	}
	returned = time.Now()
	a, err = u.expect(ctx, u.service, http.StatusSeeOther, http.MethodGet, back,
		"Cookie: "+opened.Cookie+"; "+a.Cookie+"\r\n", "")
	if err != nil {
		return returned, fmt.Errorf("return from the provider: %w", err)
	}
	began = time.Now()
	w.Return = began.Sub(returned)
	a, err = u.expect(ctx, u.service, http.StatusOK, http.MethodGet, a.Location, "", "")
	if err == nil && !bytes.Contains(a.Body, []byte(VerifiedHeading)) {
		err = fmt.Errorf("the page does not say %q", VerifiedHeading)
	}
	if err != nil {
		return returned, fmt.Errorf("read the outcome: %w", err)
	}
	w.Outcome = time.Since(began)
	return returned, nil
}

// atProvider signs in at the dev network, and returns the path and query of the return.
func (u *user) atProvider(ctx context.Context, link string) (string, error) {
	to, err := url.Parse(link)
	if err != nil {
		return "", fmt.Errorf("go to the provider: %w", err)
	}
	if _, err := u.expect(ctx, u.provider, http.StatusOK, http.MethodGet, to.RequestURI(), "",
		""); err != nil {
		return "", fmt.Errorf("open the provider's page: %w", err)
	}
	form := to.Query()
	form.Set("subject", PlatformUserID)
	form.Set("action", "sign-in")
	a, err := u.expect(ctx, u.provider, http.StatusSeeOther, http.MethodPost, to.Path, formHeader,
		form.Encode())
	if err != nil {
		return "", fmt.Errorf("sign in at the provider: %w", err)
	}
	back, err := url.Parse(a.Location)
	if err != nil {
		return "", fmt.Errorf("go back from the provider: %w", err)
	}
	return back.RequestURI(), nil
}

func (u *user) expect(ctx context.Context, c *Conn, status int, method, target, header,
	body string) (Answer, error) {
	a, err := c.Do(ctx, Request(method, c.address, target, header, body))
	if err == nil && a.Status != status {
		err = fmt.Errorf("%d instead of %d", a.Status, status)
	}
	return a, err
}
