package network

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

const defaultReturnPath = "/signin/{network}/callback"

// Options are the settings that all networks of a process share.
type Options struct {
	BaseURL string         // {base_url} of the contract, with its path prefix if it has one
	RootCAs *x509.CertPool // roots for providers' certificates; nil means the system's
	// VerifyConnection is called in each TLS handshake with a provider, as that of a tls.Config.
	VerifyConnection func(tls.ConnectionState) error
	// Now is the clock for what the process measures itself: pauses, and how old connections are; nil:
	// time.Now. Issued judges the instants in tokens and assertions; nil: Now.
	Now, Issued func() time.Time
	// Dial connects to providers; nil means a plain dial. With it, tests lead the hosts of the presets to a
	// stand-in, which must still show a certificate for them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ReturnPath is the path of the redirect URI below BaseURL, with {network} for the id; empty means the
	// sign-in page's, /signin/{network}/callback. Each redirect URI must be registered.
	ReturnPath string
	// Namespace distinguishes the provider's subjects from those of another that the id was pointed at
	// before; empty means the id. The store knows it, by the settings' IdentityIssuer.
	Namespace string
	// RequestTimeout bounds each request to the provider as a whole; 0 means 10 s. A Redeem as a whole ends
	// within twice that.
	RequestTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Issued == nil {
		o.Issued = o.Now
	}
	if o.ReturnPath == "" {
		o.ReturnPath = defaultReturnPath
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	return o
}

// Network is one identity network. Its methods are safe for concurrent use. It starts nothing, and the
// connections that it keeps close themselves, so it needs no Close.
type Network struct {
	reporter
	*discovery
	*infoClient

	openID openID // if protocol is netsettings.ProtocolOpenID2

	settings    netsettings.Settings // with defaults
	protocol    string               // netsettings.KindOIDC, KindOAuth2 or ProtocolOpenID2
	secret      string
	redirectURI string
	namespace   string
	issued      func() time.Time
	within      time.Duration // for a Redeem as a whole
	pushed      atomic.Bool   // the provider has accepted a pushed request
}

// New checks the settings and returns the network. It does not contact the provider: a provider that is down
// stops no start. Errors name the network, the setting and what is valid.
func New(s netsettings.Settings, o Options) (*Network, error) {
	o = o.withDefaults()
	s, err := s.Checked()
	if err != nil {
		return nil, err
	}
	redirectURI, err := redirectURI(o.BaseURL, o.ReturnPath, s.ID)
	if err != nil {
		return nil, err
	}
	secret, err := s.Secret()
	if err != nil {
		return nil, err
	}
	transport, guarded := newTransport(o, false), newTransport(o, true)
	bounded := func(through http.RoundTripper, maxBytes int64) *boundedTransport {
		return &boundedTransport{through, maxBytes, o.RequestTimeout}
	}
	n := &Network{
		reporter:    reporter{s.ID},
		settings:    s,
		protocol:    s.Protocol(),
		secret:      secret,
		redirectURI: redirectURI,
		namespace:   cmp.Or(o.Namespace, s.ID),
		issued:      o.Issued,
		within:      2 * o.RequestTimeout,
	}
	n.infoClient = &infoClient{
		reporter: n.reporter, settings: s, plan: s.Plan(),
		answers: bounded(transport, maxAnswerBytes).client(),
		public:  bounded(guarded, maxAnswerBytes).client(),
		lists:   bounded(transport, maxMetadataBytes).client(),
	}
	n.discovery = &discovery{
		reporter: n.reporter, settings: s, now: o.Now, oauth: n.oauthConfig,
		metadata:     bounded(transport, maxMetadataBytes).client(),
		keyTransport: bounded(transport, maxMetadataBytes),
		publicKeys:   bounded(guarded, maxMetadataBytes),
		turn:         make(chan struct{}, 1),
	}
	n.turn <- struct{}{}
	switch n.protocol {
	case netsettings.KindOAuth2:
		n.known.Store(&provider{
			oauth:    n.oauthConfig(s.AuthorizationEndpoint, s.TokenEndpoint),
			userInfo: s.UserInfoEndpoint,
		})
	case netsettings.ProtocolOpenID2:
		n.openID = openID{
			reporter: n.reporter, answers: n.answers, now: o.Issued, redirectURI: redirectURI,
			realm: strings.TrimRight(o.BaseURL, "/") + "/",
		}
		n.known.Store(&provider{oauth: n.oauthConfig(s.SignInAddress(), "")})
	}
	return n, nil
}

// redirectURI is the address the provider returns to: one per network, so that a return cannot be taken for
// another's (RFC 9700 §4.4.2.2).
func redirectURI(baseURL, path, id string) (string, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		strings.ContainsAny(baseURL, "?#") {
		return "", errors.New("base URL: an absolute http or https URL without query, for instance " +
			"https://verify.example.com")
	}
	return strings.TrimRight(baseURL, "/") + strings.ReplaceAll(path, "{network}", id), nil
}

func (n *Network) oauthConfig(authorization, token string) oauth2.Config {
	style, _ := authStyle(n.settings.AuthStyle, nil)
	return oauth2.Config{
		ClientID:     n.settings.ClientID,
		ClientSecret: n.secret,
		RedirectURL:  n.redirectURI,
		Scopes:       n.settings.AskedScopes(),
		Endpoint:     oauth2.Endpoint{AuthURL: authorization, TokenURL: token, AuthStyle: style},
	}
}

// ID is the network's id in settings, addresses, logs and completions.
func (n *Network) ID() string { return n.settings.ID }

// Namespace is the scope in which an identity's subject is unique: identities are known by it and the
// subject, not by the id. An id that is pointed at another provider has another one.
func (n *Network) Namespace() string { return n.namespace }

// Name is the name by which users know the network.
func (n *Network) Name() string { return n.settings.Name }

// Rules define which identities are accepted. The caller judges, by package rules.
func (n *Network) Rules() netsettings.Rules { return n.settings.Rules }

// Dashboard reports whether integrators log in to the dashboard through the network.
func (n *Network) Dashboard() bool { return n.settings.Dashboard }

// Proves reports whether the network's subjects are the user ids of a platform, so that a sign-in with it
// proves who has the account there.
func (n *Network) Proves(platform string) bool { return n.settings.Proves(platform) }

// PlatformOnly reports whether the network proves platform accounts alone, and no identities.
func (n *Network) PlatformOnly() bool { return n.settings.PlatformOnly }

// RedirectURI is {base_url}/signin/{id}/callback, or as Options.ReturnPath sets it; the operator registers it
// with the provider.
func (n *Network) RedirectURI() string { return n.redirectURI }

// AuthorizationOrigin is the origin that AuthURL leads to, for a page's form-action (CSP 3 §6.4.1); empty
// while an oidc network's metadata is not known.
func (n *Network) AuthorizationOrigin() string {
	p := n.known.Load()
	if p == nil {
		return ""
	}
	u, err := url.Parse(p.oauth.Endpoint.AuthURL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Discover makes sure that the provider's metadata is known, and returns an *Error if it cannot be fetched.
// It is harmless to repeat: known metadata is not fetched again, and a failure is repeated from memory for a
// short while.
func (n *Network) Discover(ctx context.Context) error {
	_, err := n.provider(ctx)
	return err
}

// AuthURL is the URL that the browser is sent to: the authorization request of the attempt, with state, nonce
// (oidc), S256 code challenge, scope and prompt (RFC 6749 §4.1.1, RFC 7636 §4.3, OpenID Connect Core 1.0
// §3.1.2.1), and, for an attempt with a MaxAge, with what has the user sign in again. A provider whose
// metadata offer it gets the request from here, and the URL only names it (RFC 9126). One that refuses that,
// and has never accepted it, gets the request by the browser, until its metadata are fetched again, unless
// these say that it must not. The error is an *Error if the provider's metadata cannot be fetched, or the
// request cannot be pushed.
func (n *Network) AuthURL(ctx context.Context, a Attempt) (string, error) {
	if !a.whole() {
		return "", n.newError(StageAuthorization, ClassState,
			"the attempt is not whole; make it with NewAttempt")
	}
	p, err := n.provider(ctx)
	if err != nil {
		return "", err
	}
	if n.protocol == netsettings.ProtocolOpenID2 {
		return n.openID.url(p, a), nil
	}
	request := n.request(p, a)
	if p.pushAt == "" || p.pushRefused.Load() {
		return request, nil
	}
	pushed, err := push(ctx, n, p, request)
	t, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		n.pushed.Store(true)
	case ok && t.final() && !p.pushOnly && !n.pushed.Load(): // Doubts reports it
		p.pushRefused.Store(true)
		return request, nil
	}
	return pushed, err
}

// request is the authorization request of an attempt, as the address that a browser may take to the provider.
func (n *Network) request(p *provider, a Attempt) string {
	// PKCE goes to plain OAuth 2 providers too: those that do not know it ignore it (RFC 9700 §2.1.1).
	params := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(a.Verifier)}
	if n.protocol == netsettings.KindOIDC {
		params = append(params, oidc.Nonce(a.Nonce))
	}
	if claims := n.settings.ClaimsRequest(); claims != "" {
		params = append(params, oauth2.SetAuthURLParam("claims", claims))
	}
	switch {
	case a.MaxAge > 0:
		for name, value := range n.settings.SignInAgain(a.MaxAge) {
			params = append(params, oauth2.SetAuthURLParam(name, value))
		}
	case n.settings.Prompt != "":
		params = append(params, oauth2.SetAuthURLParam("prompt", n.settings.Prompt))
	}
	return p.oauth.AuthCodeURL(a.State, params...)
}

// push hands an authorization request to the provider, and returns the address that only names it (RFC 9126).
// Nobody who is handed that address can alter the request, its state among it. The error is an *Error.
func push(ctx context.Context, n *Network, p *provider, request string) (string, error) {
	at, err := url.Parse(request)
	if err != nil {
		return "", n.newError(StageAuthorization, ClassMalformed, "authorization_endpoint is no address")
	}
	form := at.Query()
	if p.oauth.Endpoint.AuthStyle == oauth2.AuthStyleInParams {
		form.Set("client_secret", p.oauth.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.pushAt, strings.NewReader(form.Encode()))
	if err != nil {
		return "", n.newError(StageAuthorization, ClassMalformed,
			"pushed_authorization_request_endpoint is no address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if p.oauth.Endpoint.AuthStyle == oauth2.AuthStyleInHeader { // each escaped as in a form, RFC 6749 §2.3.1
		req.SetBasicAuth(url.QueryEscape(p.oauth.ClientID), url.QueryEscape(p.oauth.ClientSecret))
	}
	resp, err := n.client(p.publicOnly).Do(req)
	if err != nil {
		return "", n.fetchError(StageAuthorization, err, ClassReset, "no answer")
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body) // bounded by the transport
	if err != nil {
		return "", n.newError(StageAuthorization, ClassReset, "no whole answer")
	}
	var answer struct {
		URI   string `json:"request_uri"`
		Error string `json:"error"`
	}
	readable := json.Unmarshal(body, &answer) == nil
	switch {
	case readable && answer.Error != "":
		return "", n.refused(StageAuthorization, answer.Error)
	case resp.StatusCode/100 != 2:
		return "", n.badStatus(StageAuthorization, resp.StatusCode)
	case !readable || answer.URI == "":
		return "", n.newError(StageAuthorization, ClassMalformed, "no JSON object with a request_uri")
	}
	mark := "?"
	if strings.Contains(p.oauth.Endpoint.AuthURL, "?") {
		mark = "&"
	}
	named := url.Values{"client_id": {p.oauth.ClientID}, "request_uri": {answer.URI}}
	return p.oauth.Endpoint.AuthURL + mark + named.Encode(), nil
}
