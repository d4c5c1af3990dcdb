package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/edge/devnetwork"
	"verifyd/sessions"
)

// user is a person with a browser, as far as requests and cookies go. The fields of the service's own forms
// are known; those of the provider come with the redirect to it.
type user struct {
	service  *httpConn
	provider *httpConn
	returned time.Time // when the last walk came back from the provider: the request that decides
}

func newUser(s *service, n *devnetwork.Provider) *user {
	at, _ := url.Parse(n.Issuer()) // its own address parses
	return &user{service: newHTTPConn(s.listen), provider: newHTTPConn(at.Host)}
}

func (u *user) close() {
	u.service.close()
	u.provider.close()
}

const (
	formHeader = "Content-Type: application/x-www-form-urlencoded\r\n"
	// verifiedHeading is what a user reads at the end.
	verifiedHeading = "You are verified"
)

// signIn walks from the page to the page that tells the outcome.
func (u *user) signIn(ctx context.Context, token string) error {
	opened, err := u.expect(ctx, u.service, http.StatusOK, http.MethodGet, "/?session="+token, "", "")
	if err != nil {
		return fmt.Errorf("open the page: %w", err)
	}
	press := url.Values{"session": {token}, "action": {"continue"}, "network": {"default"}}.Encode()
	a, err := u.expect(ctx, u.service, http.StatusSeeOther, http.MethodPost, "/signin",
		formHeader+"Cookie: "+opened.cookie+"\r\n", press)
	if err != nil {
		return fmt.Errorf("press Continue: %w", err)
	}
	back, err := u.atProvider(ctx, a.location)
	if err != nil {
		return err
	}
	u.returned = time.Now()
	a, err = u.expect(ctx, u.service, http.StatusSeeOther, http.MethodGet, back,
		"Cookie: "+opened.cookie+"; "+a.cookie+"\r\n", "")
	if err != nil {
		return fmt.Errorf("return from the provider: %w", err)
	}
	a, err = u.expect(ctx, u.service, http.StatusOK, http.MethodGet, a.location, "", "")
	if err == nil && !bytes.Contains(a.body, []byte(verifiedHeading)) {
		err = fmt.Errorf("the page does not say %q", verifiedHeading)
	}
	if err != nil {
		return fmt.Errorf("read the outcome: %w", err)
	}
	return nil
}

// atProvider signs in at the dev network, and returns the path and query of the way back.
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
	form.Set("subject", benchUser)
	form.Set("action", "sign-in")
	a, err := u.expect(ctx, u.provider, http.StatusSeeOther, http.MethodPost, to.Path, formHeader,
		form.Encode())
	if err != nil {
		return "", fmt.Errorf("sign in at the provider: %w", err)
	}
	back, err := url.Parse(a.location)
	if err != nil {
		return "", fmt.Errorf("go back from the provider: %w", err)
	}
	return back.RequestURI(), nil
}

func (u *user) expect(ctx context.Context, c *httpConn, status int, method, target, header,
	body string) (answer, error) {
	a, err := c.do(ctx, httpRequest(method, c.address, target, header, body))
	if err == nil && a.status != status {
		err = fmt.Errorf("%d instead of %d", a.status, status)
	}
	return a, err
}

// tokenOf takes the session token out of an answer to init: its characters need no unescaping.
func tokenOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"session":"`))
	token, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(token)
}

// webhookID is under which the callback of a session arrives.
func webhookID(token string) string { return callback.ID(sessions.Token(token).ID(), false) }
