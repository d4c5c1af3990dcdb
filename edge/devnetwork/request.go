package devnetwork

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	maxFormBytes    = 64 << 10
	maxSubjectBytes = 1024 // as long as a platform_user_id, which a subject may have to equal
)

// What the buttons of the form ask for.
const (
	actionSignIn     = "sign-in"
	actionDecline    = "decline"
	actionError      = "error"       // the return carries error=server_error
	actionTokenError = "token-error" // the return carries a code for which the token endpoint answers 500
)

// authRequest is an authorization request (OpenID Connect Core 1.0 §3.1.2.1, RFC 7636 §4.3).
type authRequest struct {
	clientID, redirectURI, responseType, scope, state, nonce, challenge, challengeMethod, maxAge string
}

// field is one parameter of the request as the form carries it.
type field struct {
	Name  string
	Value *string
}

// fields names the request's parameters, for reading them and for the form's hidden inputs.
func (a *authRequest) fields() []field {
	return []field{
		{"client_id", &a.clientID},
		{"redirect_uri", &a.redirectURI},
		{"response_type", &a.responseType},
		{"scope", &a.scope},
		{"state", &a.state},
		{"nonce", &a.nonce},
		{"code_challenge", &a.challenge},
		{"code_challenge_method", &a.challengeMethod},
		{"max_age", &a.maxAge},
	}
}

var (
	challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`) // SHA-256 in base64url (RFC 7636 §4.2)
	maxAgeForm    = regexp.MustCompile(`^[0-9]{0,9}$`)        // seconds, or none
)

// readRequest reads an authorization request. problem, a text for a page, says that the browser must not be
// sent anywhere, since the redirect URI cannot be trusted (RFC 6749 §4.1.2.1); code is an error that belongs
// into the return.
func (p *Provider) readRequest(q url.Values) (a authRequest, problem, code string) {
	repeated := false
	for _, f := range a.fields() {
		*f.Value = q.Get(f.Name)
		repeated = repeated || len(q[f.Name]) > 1
	}
	switch {
	case a.clientID != p.cfg.ClientID:
		return a, "The service that sent you here is not registered: its client_id is unknown.", ""
	case len(q["redirect_uri"]) != 1 || !p.allowsRedirect(a.redirectURI):
		return a, "The address to return to is not registered: redirect_uri must equal a registered " +
			"one exactly.", ""
	case repeated:
		return a, "", "invalid_request"
	case a.responseType != "code":
		return a, "", "unsupported_response_type"
	case !slices.Contains(strings.Fields(a.scope), "openid"):
		return a, "", "invalid_scope"
	case a.challengeMethod != "S256" || !challengeForm.MatchString(a.challenge),
		!maxAgeForm.MatchString(a.maxAge):
		return a, "", "invalid_request"
	}
	return a, "", ""
}
