package network

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

// discoveryPause is how long a failure is answered from memory: long enough that a crowd at the page does not
// hammer a provider that is down, short enough that the next try of a person finds it up again.
const discoveryPause = 2 * time.Second

// discovery fetches a provider's metadata and keeps what is known about the provider, and whether it can be
// reached. It lets one caller at a time fetch the metadata; the others wait for its answer. That caller
// fetches in its own goroutine and under its own context; when it gives up, the next in turn fetches.
type discovery struct {
	reporter

	settings netsettings.Settings // with defaults
	now      func() time.Time
	oauth    func(authorization, token string) oauth2.Config

	metadata     *http.Client      // to the metadata
	keyTransport *boundedTransport // to the key set
	publicKeys   *boundedTransport // the same, if the metadata of a public issuer names its address

	known       atomic.Pointer[provider]    // nil until discovered
	lastFailure atomic.Pointer[lastFailure] // nil while all is well

	turn    chan struct{} // holds one token; its taker owns the fields below
	failure *Error
	again   time.Time // when the provider may be asked again
}

// provider is what is known about the other side: from the settings for oauth2, from discovery for oidc.
type provider struct {
	oauth          oauth2.Config
	userInfo       string
	issuerRequired bool   // its returns always carry iss (RFC 9207 §3)
	publicOnly     bool   // the addresses in its metadata must be public
	pushAt         string // where requests are pushed to (RFC 9126); empty: they go by the browser
	pushOnly       bool   // it accepts no others
	pushRefused    atomic.Bool
	keysAt         string
	keys           oidc.KeySet // nil for oauth2
	cache          *keyCache   // what keys fetches through
	algorithms     []string    // for ID tokens; asymmetric only
	authDoubt      string      // why the client may not be let in at the token endpoint; empty: it may
	until          time.Time   // when it is fetched again; zero: never
}

// fresh reports whether the known metadata need not be fetched again; values from the settings never do.
func (p *provider) fresh(now time.Time) bool { return p.until.IsZero() || now.Before(p.until) }

// metadataLife is how long metadata is used before it is fetched again, so that a provider's changes are seen
// without a restart. Until the answer comes, and while none comes, the known metadata stays in use.
const metadataLife = time.Hour

// provider returns what is known about the other side, and fetches it on first use and from time to time. The
// error is an *Error.
func (d *discovery) provider(ctx context.Context) (*provider, error) {
	p := d.known.Load()
	if p != nil && p.fresh(d.now()) {
		return p, nil
	}
	if p != nil {
		select {
		case <-d.turn:
		default: // another caller asks
			return p, nil
		}
	} else {
		select {
		case <-d.turn:
		case <-ctx.Done():
			return nil, d.fetchError(StageDiscovery, ctx.Err(), ClassCanceled, "the caller gave up")
		}
	}
	defer func() { d.turn <- struct{}{} }()
	if q := d.known.Load(); q != nil && q.fresh(d.now()) {
		return q, nil
	}
	failure := d.failure
	if failure == nil || !d.now().Before(d.again) {
		failure = d.discoverNow(ctx)
	}
	if q := d.known.Load(); q != nil {
		return q, nil
	}
	return nil, failure
}

// refresh fetches the metadata, whatever is known. The error is an *Error.
func (d *discovery) refresh(ctx context.Context) error {
	select {
	case <-d.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.turn <- struct{}{} }()
	if failure := d.discoverNow(ctx); failure != nil {
		return failure
	}
	return nil
}

// discoverNow fetches the metadata and keeps it, or the failure that came instead. The caller has the turn.
func (d *discovery) discoverNow(ctx context.Context) *Error {
	p, failure := d.fetchMetadata(ctx)
	switch {
	case failure == nil:
		d.failure = nil
		p.until = d.now().Add(metadataLife)
		d.known.Store(p)
		d.reached()
	case ctx.Err() == nil: // a caller that gave up shows nothing about the provider
		d.failure, d.again = failure, d.now().Add(discoveryPause)
		d.unreached(failure)
	}
	return failure
}

// asymmetric are the algorithms an ID token may be signed with (RFC 7518 §3.1, RFC 8037). "none" proves
// nothing. HS256 is keyed with the client secret; accepting it along with the others lets a public key be
// used as if it were that secret.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384,
	oidc.ES512, oidc.EdDSA,
}

// metadata are the members of the provider's metadata that go-oidc keeps to itself (OpenID Connect Discovery
// 1.0 §3, RFC 9207 §3, RFC 9126 §5).
type metadata struct {
	Issuer         string   `json:"issuer"`
	Keys           string   `json:"jwks_uri"`
	UserInfo       string   `json:"userinfo_endpoint"`
	Algorithms     []string `json:"id_token_signing_alg_values_supported"`
	AuthMethods    []string `json:"token_endpoint_auth_methods_supported"`
	IssuerRequired bool     `json:"authorization_response_iss_parameter_supported"`
	PushAt         string   `json:"pushed_authorization_request_endpoint"`
	PushOnly       bool     `json:"require_pushed_authorization_requests"`
}

func (d *discovery) fetchMetadata(ctx context.Context) (*provider, *Error) {
	ctx = oidc.ClientContext(ctx, d.metadata)
	tenants, many := d.settings.Tenants()
	if many {
		// the issuer that the metadata names is judged below
		ctx = oidc.InsecureIssuerURLContext(ctx, d.settings.Issuer)
	}
	// The address at which the issuer itself was reached decides what the addresses in its metadata must be:
	// the operator named the issuer.
	issuerIsPublic := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { issuerIsPublic = isPublic(c.Conn.RemoteAddr()) },
	})
	found, err := oidc.NewProvider(ctx, d.settings.Issuer)
	if mismatch, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, d.newError(StageDiscovery, ClassIssuer,
			"the metadata names the issuer "+netsettings.Plain(mismatch.Discovered)+
				"; the setting issuer must be spelled exactly so")
	}
	if err != nil {
		return nil, d.fetchError(StageDiscovery, err, ClassMalformed, notMetadata(err))
	}
	var m metadata
	if err := found.Claims(&m); err != nil {
		return nil, d.newError(StageDiscovery, ClassMalformed, notMetadata(err))
	}
	if many && m.Issuer != tenants.Named {
		return nil, d.newError(StageDiscovery, ClassIssuer, "the metadata does not name Microsoft's issuer")
	}
	return d.checkMetadata(found, m, issuerIsPublic)
}

// wrongMember finds a member in the text of a decoder's error, which is all that go-oidc returns of it.
var wrongMember = regexp.MustCompile(`struct field \w+\.([a-z_]{1,64}) of type`)

// notMetadata says why a document is not the provider's metadata.
func notMetadata(err error) string {
	if m := wrongMember.FindStringSubmatch(err.Error()); m != nil {
		return m[1] + " in the metadata has another JSON type than it must"
	}
	return "the metadata is not the JSON object expected"
}

func (d *discovery) checkMetadata(found *oidc.Provider, m metadata, publicOnly bool) (*provider, *Error) {
	e := found.Endpoint()
	for _, endpoint := range []struct {
		name, value string
		required    bool
	}{
		{"authorization_endpoint", e.AuthURL, true},
		{"token_endpoint", e.TokenURL, true},
		{"jwks_uri", m.Keys, true},
		{"userinfo_endpoint", m.UserInfo, false},
		{"pushed_authorization_request_endpoint", m.PushAt, false},
	} {
		if endpoint.value == "" && !endpoint.required {
			continue
		}
		if err := d.checkDiscovered(endpoint.value, publicOnly); err != nil {
			return nil, d.newError(StageDiscovery, ClassMalformed, endpoint.name+" "+err.Error())
		}
	}
	algorithms := asymmetric
	if len(m.Algorithms) > 0 {
		algorithms = slices.DeleteFunc(slices.Clone(asymmetric), func(a string) bool {
			return !slices.Contains(m.Algorithms, a)
		})
	}
	if len(algorithms) == 0 {
		return nil, d.newError(StageDiscovery, ClassSignature,
			"the provider signs ID tokens with no asymmetric algorithm; choose one there, for instance "+
				"RS256 or ES256")
	}
	keys, cache := d.keysAt(m.Keys, publicOnly)
	p := &provider{
		oauth:          d.oauth(e.AuthURL, e.TokenURL),
		userInfo:       m.UserInfo,
		issuerRequired: m.IssuerRequired,
		keysAt:         m.Keys,
		publicOnly:     publicOnly,
		pushAt:         m.PushAt,
		pushOnly:       m.PushOnly,
		keys:           keys,
		cache:          cache,
		algorithms:     algorithms,
	}
	if d.settings.UserInfoEndpoint != "" {
		p.userInfo = d.settings.UserInfoEndpoint
	}
	p.oauth.Endpoint.AuthStyle, p.authDoubt = authStyle(d.settings.AuthStyle, m.AuthMethods)
	return p, nil
}

// authStyle chooses how the client authenticates at the token endpoint: as the settings say, or else as the
// metadata offer (OpenID Connect Discovery 1.0 §3; without the member, only the header). x/oauth2's own
// detection would post the code a second time, in the other style, when the first answer is an error.
func authStyle(set string, offered []string) (style oauth2.AuthStyle, doubt string) {
	header := len(offered) == 0 || slices.Contains(offered, "client_secret_basic")
	params := slices.Contains(offered, "client_secret_post")
	style = oauth2.AuthStyleInHeader
	if set == netsettings.AuthParams || set == "" && params && !header {
		style = oauth2.AuthStyleInParams
	}
	switch {
	case !header && !params:
		doubt = "its metadata offer no authentication by a client secret"
	case len(offered) > 0 && style == oauth2.AuthStyleInHeader && !header,
		len(offered) > 0 && style == oauth2.AuthStyleInParams && !params:
		doubt = "its metadata do not offer auth_style " + set
	}
	return style, doubt
}

// checkDiscovered is checkURL, and refuses two more: plain http, if the provider itself is reached over
// https, and an address that is not public, if the provider itself is at a public one. Its metadata must not
// lead the code, or this process, to services on this machine or next to it. The address of a name is judged
// when it is dialled; see guard.
func (d *discovery) checkDiscovered(raw string, publicOnly bool) error {
	if err := netsettings.CheckURL(raw); err != nil {
		return err
	}
	if strings.HasPrefix(d.settings.Issuer, "https:") && !strings.HasPrefix(raw, "https:") {
		return errors.New("must be https")
	}
	if u, err := url.Parse(raw); publicOnly && (err != nil || isHere(u.Hostname())) {
		return errors.New("is not a public address, and the issuer's is")
	}
	return nil
}

// isHere reports whether a URL's host names an address that is not public, without a look-up.
func isHere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil &&
		public.CheckIP(addr) != nil
}

// lastFailure is the last failure to reach the provider.
type lastFailure struct {
	failure *Error
	at      time.Time
}

func (d *discovery) reached() { d.lastFailure.Store(nil) }

func (d *discovery) unreached(t *Error) { d.lastFailure.Store(&lastFailure{t, d.now()}) }
