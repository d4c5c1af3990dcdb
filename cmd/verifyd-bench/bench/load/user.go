package load

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// User is a person with a browser, as far as requests and cookies go. The fields of the service's own forms
// are known; those of the provider come with the redirect to it.
type User struct {
	Service  *Conn // to the service: an integrator may use it too
	provider *Conn
	Returned time.Time // when the last walk came back from the provider: the request that decides
}

// NewUser returns a user of the service at an address, who signs in at the dev network with this issuer.
func NewUser(service, issuer string) *User {
	at, _ := url.Parse(issuer) // the dev network's own address parses
	return &User{Service: NewConn(service), provider: NewConn(at.Host)}
}

// Close ends the connections.
func (u *User) Close() {
	u.Service.Close()
	u.provider.Close()
}

const (
	formHeader = "Content-Type: application/x-www-form-urlencoded\r\n"
	// verifiedHeading is what a user reads at the end.
	verifiedHeading = "You are verified"
)

// SignIn walks from the service's page to the one that shows the outcome.
func (u *User) SignIn(ctx context.Context, token string) error {
	opened, err := u.expect(ctx, u.Service, http.StatusOK, http.MethodGet, "/?session="+token, "", "")
	if err != nil {
		return fmt.Errorf("open the page: %w", err)
	}
	press := url.Values{"session": {token}, "action": {"continue"}, "network": {"default"}}.Encode()
	a, err := u.expect(ctx, u.Service, http.StatusSeeOther, http.MethodPost, "/signin",
		formHeader+"Cookie: "+opened.Cookie+"\r\n", press)
	if err != nil {
		return fmt.Errorf("press Continue: %w", err)
	}
	back, err := u.atProvider(ctx, a.Location)
	if err != nil {
		return err
	}
	u.Returned = time.Now()
	a, err = u.expect(ctx, u.Service, http.StatusSeeOther, http.MethodGet, back,
		"Cookie: "+opened.Cookie+"; "+a.Cookie+"\r\n", "")
	if err != nil {
		return fmt.Errorf("return from the provider: %w", err)
	}
	a, err = u.expect(ctx, u.Service, http.StatusOK, http.MethodGet, a.Location, "", "")
	if err == nil && !bytes.Contains(a.Body, []byte(verifiedHeading)) {
		err = fmt.Errorf("the page does not say %q", verifiedHeading)
	}
	if err != nil {
		return fmt.Errorf("read the outcome: %w", err)
	}
	return nil
}

// atProvider signs in at the dev network, and returns the path and query of the way back.
func (u *User) atProvider(ctx context.Context, link string) (string, error) {
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

func (u *User) expect(ctx context.Context, c *Conn, status int, method, target, header,
	body string) (Answer, error) {
	a, err := c.Do(ctx, Request(method, c.address, target, header, body))
	if err == nil && a.Status != status {
		err = fmt.Errorf("%d instead of %d", a.Status, status)
	}
	return a, err
}
