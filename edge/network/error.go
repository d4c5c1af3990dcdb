package network

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
	"verifyd/sessions/urlpolicy"
)

// ErrDeclined is returned by Redeem when the user said no at the provider (error=access_denied, RFC 6749
// §4.1.2.1; from kind oidc error=consent_required, too). It is a verdict: the caller completes the session as
// failed.
var ErrDeclined = errors.New("the user declined at the identity network")

// The stage at which an attempt failed.
const (
	StageDiscovery     = "discovery"     // the provider's metadata
	StageAuthorization = "authorization" // what the browser brought back
	StageToken         = "token"         // the exchange of the code
	StageIDToken       = "id_token"      // the ID token and the keys to check it
	StageUserInfo      = "user_info"
)

// What the failure was, in one bounded word. Those that a callback attempt has too carry the same name there.
const (
	ClassDNS      = "dns"             // the provider's name did not resolve
	ClassConnect  = "connect"         // no TCP connection
	ClassAddress  = "refused_address" // the provider's metadata lead to an address that is not public
	ClassTLS      = "tls"             // no TLS session, or a certificate that does not verify
	ClassTimeout  = "timeout"         // no whole answer in time
	ClassCanceled = "canceled"        // the caller gave up
	// ClassReset: the connection ended before a whole answer, or the answer is not HTTP/1
	ClassReset     = "reset"
	ClassStatus    = "status"    // an unexpected HTTP status
	ClassRedirect  = "redirect"  // a 3xx, which is never followed
	ClassTooLarge  = "too_large" // more bytes than any honest answer has
	ClassMalformed = "malformed" // not the JSON expected, or a required member is missing
	ClassRefused   = "refused"   // the provider answered with an OAuth error
	ClassState     = "state"     // the return belongs to another attempt
	ClassIssuer    = "issuer"    // another provider than the one asked
	// ClassSignature: not signed by a key the provider publishes, or with an algorithm that is not allowed
	ClassSignature = "signature"
	ClassAudience  = "audience" // an ID token for another client
	ClassExpired   = "expired"  // an ID token that is over
	ClassEarly     = "early"    // an ID token of the future: one of the two clocks is wrong
	ClassNonce     = "nonce"    // an ID token for another attempt
	ClassSubject   = "subject"  // no usable subject, or two that differ
)

// Passing reports whether waiting cures a failure of a class: the provider was not there, or not healthy.
func Passing(class string) bool {
	switch class {
	case ClassDNS, ClassConnect, ClassTLS, ClassTimeout, ClassReset, ClassStatus:
		return true
	default:
		return false
	}
}

// final reports whether a repeat would fail alike: the provider has answered, and not that it is busy or ill.
func (t *Error) final() bool {
	return !Passing(t.Class) || t.status/100 == 4 && t.status != http.StatusTooManyRequests
}

// Error is an attempt that ended without a verdict: the page explains and offers another try. Its text is for
// logs: bounded, without code, token, secret or URL query. It wraps nothing, since the errors beneath quote
// URLs and bodies.
type Error struct {
	Network string // id of the identity network
	Stage   string // one of the Stage words
	Class   string // one of the Class words
	detail  string
	status  int // of class status: the HTTP status, if it is known
}

// Error returns one line for logs.
func (t *Error) Error() string {
	return fmt.Sprintf("identity network %s: %s: %s: %s", t.Network, t.Stage, t.Class, t.detail)
}

// reporter makes the errors of one network.
type reporter struct{ network string } // its id

func (r reporter) newError(stage, class, detail string) *Error {
	return &Error{Network: r.network, Stage: stage, Class: class, detail: detail}
}

// fetchError reports why a request to the provider brought no answer. fallback is the class of errors that do
// not come from the transport, that is of answers that did not decode.
func (r reporter) fetchError(stage string, err error, fallback, detail string) *Error {
	if class, why := classify(err); class != "" {
		t := r.newError(stage, class, why)
		if status, ok := errors.AsType[statusError](err); ok {
			t.status = int(status)
		}
		return t
	}
	return r.newError(stage, fallback, detail)
}

// statusError is an answer to a GET with another status than 200.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

// keySetError is an answer that is no key set, in words of our own.
type keySetError string

func (e keySetError) Error() string { return string(e) }

var (
	errRedirect = errors.New(
		"the provider redirects this request; its address in the settings or metadata must be the final one")
	errTooLarge = errors.New("the answer is too large")
)

// classify names a transport error in words of our own: the error's text may quote URLs. The class is empty
// for an error that does not come from the transport.
func classify(err error) (class, detail string) {
	var (
		status statusError
		dns    *net.DNSError
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
		alert  tls.AlertError
		op     *net.OpError
		broken *transportError
		keys   keySetError
	)
	switch {
	case errors.As(err, &status):
		return ClassStatus, status.Error()
	case errors.Is(err, errRedirect):
		return ClassRedirect, errRedirect.Error()
	case errors.Is(err, errTooLarge):
		return ClassTooLarge, errTooLarge.Error()
	case errors.As(err, &keys):
		return ClassMalformed, keys.Error()
	case errors.Is(err, context.Canceled):
		return ClassCanceled, "the caller gave up"
	case isTimeout(err):
		return ClassTimeout, "no whole answer in time"
	case errors.As(err, &cert):
		return ClassTLS, netsettings.Plain(cert.Err.Error())
	case errors.As(err, &record), errors.As(err, &alert):
		return ClassTLS, "no TLS session"
	case errors.As(err, &dns):
		return ClassDNS, "the name does not resolve"
	case errors.Is(err, urlpolicy.ErrRefusedAddress):
		return ClassAddress,
			"the provider's metadata lead to an address that is not public, and the issuer's is"
	case errors.As(err, &op) && op.Op == "dial":
		return ClassConnect, "no connection"
	case errors.As(err, &broken):
		return ClassReset, "the connection ended before a whole answer"
	}
	return "", ""
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// oauthErrors are the error codes that are repeated in a log line, with a hint if the operator can do
// something. Any other code is a text of the provider, or of the person who wrote the URL, and is not
// repeated.
var oauthErrors = map[string]string{
	// RFC 6749 §4.1.2.1
	"invalid_request":           "",
	"unauthorized_client":       "the client may not use the authorization code flow there",
	"access_denied":             "",
	"unsupported_response_type": "the client may not use the authorization code flow there",
	"invalid_scope":             "check scopes",
	"server_error":              "",
	"temporarily_unavailable":   "",
	// RFC 6749 §5.2
	"invalid_client":         "check client_id, client_secret and auth_style",
	"invalid_grant":          "the code was used, expired, or is for another redirect URI",
	"unsupported_grant_type": "the client may not use the authorization code flow there",
	// OpenID Connect Core 1.0 §3.1.2.6
	"interaction_required":       "check prompt",
	"login_required":             "check prompt",
	"account_selection_required": "check prompt",
	"consent_required":           "check prompt",
	// GitHub's own
	"bad_verification_code":        "the code was used, expired, or is for another client",
	"incorrect_client_credentials": "check client_id and client_secret",
	"redirect_uri_mismatch":        "register the redirect URI there",
	"unverified_user_email":        "the user has not verified an e-mail address there",
}

// twitchErrors are the messages that Twitch sends instead of error codes, in lower case, as the codes that
// they mean.
var twitchErrors = map[string]string{
	"invalid client secret":                                "invalid_client",
	"invalid client":                                       "invalid_client",
	"missing client secret":                                "invalid_client",
	"invalid authorization code":                           "invalid_grant",
	"parameter redirect_uri does not match registered uri": "redirect_uri_mismatch",
}

// refused is the failure of an OAuth error code.
func (r reporter) refused(stage, code string) *Error {
	hint, known := oauthErrors[code]
	switch {
	case !known:
		return r.newError(stage, ClassRefused, "an error code that verifyd does not know")
	case hint != "":
		return r.newError(stage, ClassRefused, code+" ("+hint+")")
	}
	return r.newError(stage, ClassRefused, code)
}

// tokenError reports why the token endpoint returned no token.
func (r reporter) tokenError(err error) *Error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return r.fetchError(StageToken, err, ClassMalformed, "no JSON object with an access_token")
	}
	// GitHub and others report errors with status 200.
	if answer.ErrorCode != "" && answer.Response.StatusCode < http.StatusInternalServerError {
		return r.refused(StageToken, answer.ErrorCode)
	}
	var twitch struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer.Body, &twitch) == nil {
		if code, ok := twitchErrors[strings.ToLower(twitch.Message)]; ok {
			return r.refused(StageToken, code)
		}
	}
	return r.badStatus(StageToken, answer.Response.StatusCode)
}

func (r reporter) badStatus(stage string, status int) *Error {
	t := r.newError(stage, ClassStatus, statusError(status).Error())
	t.status = status
	return t
}

// transportError marks an error of the transport, so that it can be distinguished from an answer that does
// not decode.
type transportError struct{ err error }

func (e *transportError) Error() string { return "ask the provider: " + e.err.Error() }

func (e *transportError) Unwrap() error { return e.err }
