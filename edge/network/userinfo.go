package network

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

// infoClient asks a provider about the user who signed in, with the token that it issued.
type infoClient struct {
	reporter

	settings netsettings.Settings // with defaults
	plan     netsettings.Plan

	answers *http.Client // to the token and user-info endpoints
	public  *http.Client // the same, to public addresses only: if a public issuer's metadata names them
	lists   *http.Client // to lists, which are as long as metadata
}

// client returns the way to the token and user-info endpoints.
func (ic *infoClient) client(publicOnly bool) *http.Client {
	if publicOnly {
		return ic.public
	}
	return ic.answers
}

// askUserInfo fetches the user-info answer (OpenID Connect Core 1.0 §5.3; plain OAuth 2 providers work
// likewise). The error is an *Error.
func (ic *infoClient) askUserInfo(ctx context.Context, p *provider, token *oauth2.Token) (claims, error) {
	discovered := ic.settings.UserInfoEndpoint == "" // otherwise the operator named it
	body, failure := ic.get(ctx, ic.client(p.publicOnly && discovered), p.userInfo, token)
	if failure != nil {
		return nil, failure
	}
	doc, err := parseClaims(body)
	if err != nil {
		return nil, ic.newError(StageUserInfo, ClassMalformed, err.Error())
	}
	return doc, nil
}

// get requests something about the user that the token was issued for.
func (ic *infoClient) get(ctx context.Context, client *http.Client, address string,
	token *oauth2.Token) ([]byte,
	*Error) {
	// RFC 6749 §7.1: a token of an unknown type is not used.
	if token.Type() != "Bearer" {
		return nil, ic.newError(StageToken, ClassMalformed, "the token is not of type Bearer")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, ic.newError(StageUserInfo, ClassMalformed, "the endpoint is not a URL")
	}
	token.SetAuthHeader(req)
	resp, err := client.Do(req)
	if err != nil {
		return nil, ic.fetchError(StageUserInfo, err, ClassReset, "no answer")
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body) // bounded by the transport
	if err != nil {
		return nil, ic.newError(StageUserInfo, ClassReset, "no whole answer")
	}
	return body, nil
}

// claims are the members of an ID token or of a user-info answer, each as it was written: a number keeps all
// its digits.
type claims map[string]jsontext.Value

// parseClaims reads strict JSON: a duplicate name would let two readers see two users.
func parseClaims(b []byte) (claims, error) {
	var c claims
	if err := json.Unmarshal(b, &c); err != nil || c == nil {
		return nil, errors.New("not one JSON object with distinct names")
	}
	return c, nil
}

// subject is the sub of an ID token; empty if it is missing or not text.
func (c claims) subject() string {
	var s string
	if json.Unmarshal(c[netsettings.ClaimSubject], &s) != nil {
		return ""
	}
	return s
}

// has reports whether the path leads to a value other than null.
func (c claims) has(path string) bool {
	v, ok := c.find(path)
	return ok && v.Kind() != 'n'
}

func (c claims) isTrue(path string) bool {
	v, ok := c.find(path)
	return ok && v.Kind() == 't'
}

// isVerified is isTrue for the claim of a verified address. Cognito, JumpCloud and Apple, all of kind oidc,
// write it as text.
func (ic *infoClient) isVerified(c claims, path string) bool {
	v, _ := c.find(path)
	return c.isTrue(path) || ic.settings.Protocol() == netsettings.KindOIDC && string(v) == `"true"`
}

// find follows a path: a top-level name as it is (some contain dots and slashes), else a JSON Pointer, else a
// dotted path.
func (c claims) find(path string) (jsontext.Value, bool) {
	if v, ok := c[path]; ok {
		return v, true
	}
	steps := strings.Split(path, ".")
	if strings.HasPrefix(path, "/") {
		steps = steps[:0]
		for step := range jsontext.Pointer(path).Tokens() {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return nil, false
	}
	v, ok := c[steps[0]]
	for _, step := range steps[1:] {
		if !ok {
			break
		}
		v, ok = enter(v, step)
	}
	return v, ok
}

// enter returns the member or element that step names.
func enter(v jsontext.Value, step string) (jsontext.Value, bool) {
	switch v.Kind() {
	case '{':
		var object map[string]jsontext.Value
		if json.Unmarshal(v, &object) != nil {
			return nil, false
		}
		inner, ok := object[step]
		return inner, ok
	case '[':
		var array []jsontext.Value
		i, err := strconv.ParseUint(step, 10, 16)
		if err != nil || json.Unmarshal(v, &array) != nil || int(i) >= len(array) {
			return nil, false
		}
		return array[i], true
	default: // a plain value has nothing inside
		return nil, false
	}
}

// wholeNumber is the only spelling of a number that is accepted as an identifier: 1e3 and 1000.0 are the same
// number to some readers and not to others.
var wholeNumber = regexp.MustCompile(`^-?[0-9]{1,40}$`)

// text returns the value at the path, which is text or a whole number. Errors name the path, never the value.
func (c claims) text(path string) (string, error) {
	v, ok := c.find(path)
	if !ok {
		return "", errors.New("there is no " + netsettings.Plain(path))
	}
	if v.Kind() == '0' && wholeNumber.Match(v) {
		return string(v), nil
	}
	var s string
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return "", errors.New(netsettings.Plain(path) + " is neither text nor a whole number")
	}
	return s, nil
}

const maxDisplayBytes = 256

// displayName is a name for people, from the first of the claims that has one.
func (c claims) displayName(names []string) string {
	for _, name := range names {
		s, err := c.text(name)
		if err != nil {
			continue
		}
		s = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, s))
		if s != "" {
			return cut(s, maxDisplayBytes)
		}
	}
	return ""
}

// cut shortens s to at most maxBytes without breaking a character.
func cut(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	for maxBytes > 0 && !utf8.RuneStart(s[maxBytes]) {
		maxBytes--
	}
	return s[:maxBytes]
}
