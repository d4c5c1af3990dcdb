package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Steam speaks OpenID Authentication 2.0 (https://openid.net/specs/openid-authentication-2_0.html). This is
// the part of it that one known provider needs: no discovery, no association, direct verification alone.
const (
	openIDNamespace = "http://specs.openid.net/auth/2.0"
	openIDSelect    = "http://specs.openid.net/auth/2.0/identifier_select"
	openIDPrefix    = "openid."
	steamIdentity   = "https://steamcommunity.com/openid/id/"
	maxOpenIDFields = 32   // Steam sends eleven
	maxOpenIDBytes  = 2048 // of one value
	maxAnswerLines  = 16   // of a direct verification; Steam sends two
	// how old a response nonce may be, and how far ahead: the browser's way back takes seconds
	assertionFresh   = 5 * time.Minute
	firstSteamID     = 76561197960265728 // 0x0110000100000000: public universe, individual account, number 0
	lastSteamID      = firstSteamID + 1<<32 - 1
	maxNonceIDLength = 255 // OpenID Authentication 2.0 §10.1
)

// assertion is the content of an OpenID 2.0 provider's redirect: its openid.… parameters, each there once.
type assertion struct{ fields map[string]string }

// parseAssertion reads the openid.… parameters of a return; nil if there are none.
func parseAssertion(q url.Values) (*assertion, error) {
	fields := map[string]string{}
	for name := range q {
		if !strings.HasPrefix(name, openIDPrefix) {
			continue
		}
		v, err := single(q, name, maxOpenIDBytes)
		if err != nil {
			return nil, errors.Join(ErrBadReturn,
				errors.New("an openid parameter is repeated, too long or not printable ASCII"))
		}
		fields[name] = v
	}
	switch {
	case len(fields) == 0:
		return nil, nil //nolint:nilnil // the most common case: a return of another protocol
	case len(fields) > maxOpenIDFields:
		return nil, fmt.Errorf("%w: over %d openid parameters", ErrBadReturn, maxOpenIDFields)
	}
	return &assertion{fields}, nil
}

func (a *assertion) get(name string) string { return a.fields[openIDPrefix+name] }

// openID is one network's part of OpenID 2.0.
type openID struct {
	reporter

	answers     *http.Client // to the provider
	now         func() time.Time
	redirectURI string
	realm       string // the site that the user is asked to sign in to, as an address
}

// url is the authentication request (§9.1). The state travels in return_to, which the provider signs.
func (o openID) url(p *provider, a Attempt) string {
	q := url.Values{
		"openid.ns": {openIDNamespace}, "openid.mode": {"checkid_setup"},
		"openid.claimed_id": {openIDSelect}, "openid.identity": {openIDSelect},
		"openid.return_to": {o.returnTo(a)}, "openid.realm": {o.realm},
	}
	return p.oauth.Endpoint.AuthURL + "?" + q.Encode()
}

func (o openID) returnTo(a Attempt) string {
	return o.redirectURI + "?" + url.Values{"state": {a.State}}.Encode()
}

// redeem processes an OpenID 2.0 return. The attempt is the caller's, and spent: since the signed return_to
// carries its state, an assertion counts for one attempt alone, and once.
func (o openID) redeem(ctx context.Context, p *provider, a Attempt, r Return) (Identity, error) {
	switch mode := r.openid.get("mode"); mode {
	case "id_res":
	case "cancel": // §10.2.2
		return Identity{}, ErrDeclined
	case "error": // §5.2.3
		return Identity{}, o.newError(StageAuthorization, ClassRefused,
			"the provider answered with an OpenID error")
	default:
		return Identity{}, o.newError(StageAuthorization, ClassMalformed,
			"not an answer to an authentication request")
	}
	if class, detail := o.checkAssertion(p, a, r.openid); class != "" {
		return Identity{}, o.newError(StageAuthorization, class, detail)
	}
	subject := strings.TrimPrefix(r.openid.get("claimed_id"), steamIdentity)
	if err := o.verifyDirectly(ctx, p, r.openid); err != nil {
		return Identity{}, err
	}
	return Identity{Subject: subject}, nil
}

// signedFields are the fields that the signature must cover; otherwise a field could come from anybody
// (§10.1).
var signedFields = []string{
	"op_endpoint", "claimed_id", "identity", "return_to", "response_nonce", "assoc_handle",
}

// checkAssertion makes the checks that are possible before the provider is asked (§11.1 to §11.3). The class
// is empty when all holds.
func (o openID) checkAssertion(p *provider, a Attempt, s *assertion) (class, detail string) {
	signed := strings.Split(s.get("signed"), ",")
	for _, name := range signedFields {
		if !slices.Contains(signed, name) || s.get(name) == "" {
			return ClassSignature, "the assertion's " + name + " is missing or not signed"
		}
	}
	switch {
	case s.get("ns") != openIDNamespace:
		return ClassMalformed, "not OpenID 2.0"
	case s.get("sig") == "":
		return ClassSignature, "the assertion is not signed"
	case s.get("op_endpoint") != p.oauth.Endpoint.AuthURL:
		return ClassIssuer, "the assertion comes from another provider"
	case s.get("return_to") != o.returnTo(a):
		return ClassState, "the assertion is for another place of return or another attempt"
	case s.get("claimed_id") != s.get("identity"):
		return ClassSubject, "the claimed id and the identity differ"
	case !isSteamIdentity(s.get("claimed_id")):
		return ClassSubject, "the claimed id is not a Steam account's"
	}
	return o.checkFresh(s.get("response_nonce"))
}

var steamIdentityForm = regexp.MustCompile(`^https://steamcommunity\.com/openid/id/([0-9]{17})$`)

// isSteamIdentity accepts the claimed ids of Steam's individual accounts, and no other spelling.
func isSteamIdentity(claimed string) bool {
	m := steamIdentityForm.FindStringSubmatch(claimed)
	if m == nil {
		return false
	}
	id, err := strconv.ParseInt(m[1], 10, 64)
	return err == nil && id >= firstSteamID && id <= lastSteamID
}

// checkFresh judges the instant at the start of a response nonce (§10.1).
func (o openID) checkFresh(nonce string) (class, detail string) {
	const form = "2006-01-02T15:04:05Z"
	if len(nonce) < len(form) || len(nonce) > maxNonceIDLength {
		return ClassNonce, "the response nonce has no instant"
	}
	at, err := time.Parse(form, nonce[:len(form)])
	switch {
	case err != nil:
		return ClassNonce, "the response nonce has no instant"
	case o.now().Sub(at) > assertionFresh:
		return ClassExpired, "the assertion is old; check both clocks"
	case at.Sub(o.now()) > assertionFresh:
		return ClassEarly, "the assertion is of the future; check both clocks"
	}
	return "", ""
}

// verifyDirectly asks the provider whether it made the assertion, once (§11.4.2). It goes to the address of
// the settings, never to one that the browser brought.
func (o openID) verifyDirectly(ctx context.Context, p *provider, s *assertion) error {
	form := url.Values{}
	for name, v := range s.fields {
		form.Set(name, v)
	}
	form.Set("openid.mode", "check_authentication")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.oauth.Endpoint.AuthURL,
		strings.NewReader(form.Encode()))
	if err != nil {
		return o.newError(StageToken, ClassMalformed, "the endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// Steam refuses requests without them at times.
	req.Header.Set("Origin", strings.TrimSuffix(o.realm, "/"))
	req.Header.Set("Referer", o.realm)
	resp, err := o.answers.Do(req)
	if err != nil {
		return o.fetchError(StageToken, err, ClassReset, "no answer")
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return o.badStatus(StageToken, resp.StatusCode)
	}
	body, err := io.ReadAll(resp.Body) // bounded by the transport
	if err != nil {
		return o.newError(StageToken, ClassReset, "no whole answer")
	}
	valid, ok := readVerification(string(body))
	switch {
	case !ok:
		return o.newError(StageToken, ClassMalformed, "not an answer to a direct verification")
	case !valid:
		return o.newError(StageToken, ClassSignature,
			"the provider says that it did not make this assertion, or that it was verified before")
	}
	return nil
}

// readVerification reads an answer in key-value form (§4.1.1). A duplicate key makes it unreadable.
func readVerification(body string) (valid, ok bool) {
	lines := strings.Split(strings.TrimRight(body, "\n"), "\n") // Steam may send more than one
	if len(lines) > maxAnswerLines {
		return false, false
	}
	fields := map[string]string{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if _, repeated := fields[name]; !found || repeated {
			return false, false
		}
		fields[name] = value
	}
	if fields["ns"] != openIDNamespace || fields["is_valid"] != "true" && fields["is_valid"] != "false" {
		return false, false
	}
	return fields["is_valid"] == "true", true
}
