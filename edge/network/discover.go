package network

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// discoveryPause is how long a failure is answered from memory: long enough that a crowd at the page does not hammer a provider
// that is down, short enough that the next try of a person finds it up again.
const discoveryPause = 2 * time.Second

// discovery lets one caller at a time ask for the metadata; the others wait for its answer. The one who asks does so in its own
// goroutine and under its own context; when it gives up, the next in turn asks.
type discovery struct {
	turn    chan struct{} // holds one token; whoever took it owns the fields below
	failure *Trouble
	again   time.Time // from when the provider may be asked anew
}

func newDiscovery() discovery {
	d := discovery{turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	return d
}

// metadataLife is for how long metadata is used before it is asked for anew, so that a provider's changes are seen without a restart.
// Until the answer comes, and while none comes, what is known goes on to be used.
const metadataLife = time.Hour

// fresh reports whether what is known need not be asked for anew; what the settings say never does.
func (p *provider) fresh(now time.Time) bool { return p.until.IsZero() || now.Before(p.until) }

// provider gives what is known about the other side, asking for it on first use and from time to time. The error is a *Trouble.
func (n *Network) provider(ctx context.Context) (*provider, error) {
	p := n.known.Load()
	if p != nil && p.fresh(n.now()) {
		return p, nil
	}
	d := &n.discover
	if p != nil {
		select {
		case <-d.turn:
		default: // somebody asks
			return p, nil
		}
	} else {
		select {
		case <-d.turn:
		case <-ctx.Done():
			return nil, n.fetchTrouble(StageDiscovery, ctx.Err(), ClassCanceled, "the caller gave up")
		}
	}
	defer func() { d.turn <- struct{}{} }()
	if q := n.known.Load(); q != nil && q.fresh(n.now()) {
		return q, nil
	}
	trouble := d.failure
	if trouble == nil || !n.now().Before(d.again) {
		trouble = n.discoverNow(ctx)
	}
	if q := n.known.Load(); q != nil {
		return q, nil
	}
	return nil, trouble
}

// refresh asks for the metadata whatever is known. The error is a *Trouble.
func (n *Network) refresh(ctx context.Context) error {
	select {
	case <-n.discover.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.discover.turn <- struct{}{} }()
	if trouble := n.discoverNow(ctx); trouble != nil {
		return trouble
	}
	return nil
}

// discoverNow asks for the metadata and keeps them, or the trouble that came instead. The caller has the turn.
func (n *Network) discoverNow(ctx context.Context) *Trouble {
	d := &n.discover
	p, trouble := n.fetchMetadata(ctx)
	switch {
	case trouble == nil:
		d.failure = nil
		p.until = n.now().Add(metadataLife)
		n.known.Store(p)
		n.reached()
	case ctx.Err() == nil: // a caller that gave up says nothing about the provider
		d.failure, d.again = trouble, n.now().Add(discoveryPause)
		n.unreached(trouble)
	}
	return trouble
}

// asymmetric are the algorithms an ID token may be signed with (RFC 7518 §3.1, RFC 8037). "none" proves nothing. HS256 is keyed
// with the client secret; accepting it beside the others lets a public key be used as if it were that secret.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// metadata are the members of the provider's metadata that go-oidc keeps to itself (OpenID Connect Discovery 1.0 §3, RFC 9207 §3).
type metadata struct {
	Issuer         string   `json:"issuer"`
	Keys           string   `json:"jwks_uri"`
	UserInfo       string   `json:"userinfo_endpoint"`
	Algorithms     []string `json:"id_token_signing_alg_values_supported"`
	IssuerRequired bool     `json:"authorization_response_iss_parameter_supported"`
}

func (n *Network) fetchMetadata(ctx context.Context) (*provider, *Trouble) {
	ctx = oidc.ClientContext(ctx, n.metadata)
	if n.manyTenants() {
		ctx = oidc.InsecureIssuerURLContext(ctx, n.settings.Issuer) // the issuer that the metadata names is judged below
	}
	found, err := oidc.NewProvider(ctx, n.settings.Issuer)
	if mismatch, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, n.trouble(StageDiscovery, ClassIssuer,
			"the metadata names the issuer "+plain(mismatch.Discovered)+"; the setting issuer must be spelled exactly so")
	}
	if err != nil {
		return nil, n.fetchTrouble(StageDiscovery, err, ClassMalformed, "the metadata is not the JSON object expected")
	}
	var m metadata
	if err := found.Claims(&m); err != nil {
		return nil, n.trouble(StageDiscovery, ClassMalformed, "the metadata is not the JSON object expected")
	}
	if n.manyTenants() && m.Issuer != microsoftTemplate && m.Issuer != microsoftConsumers {
		return nil, n.trouble(StageDiscovery, ClassIssuer, "the metadata does not name Microsoft's issuer")
	}
	return n.checkMetadata(found, m)
}

func (n *Network) checkMetadata(found *oidc.Provider, m metadata) (*provider, *Trouble) {
	e := found.Endpoint()
	for _, endpoint := range []struct {
		name, value string
		required    bool
	}{
		{"authorization_endpoint", e.AuthURL, true},
		{"token_endpoint", e.TokenURL, true},
		{"jwks_uri", m.Keys, true},
		{"userinfo_endpoint", m.UserInfo, false},
	} {
		if endpoint.value == "" && !endpoint.required {
			continue
		}
		if err := n.checkDiscovered(endpoint.value); err != nil {
			return nil, n.trouble(StageDiscovery, ClassMalformed, endpoint.name+" "+err.Error())
		}
	}
	algorithms := asymmetric
	if len(m.Algorithms) > 0 {
		algorithms = slices.DeleteFunc(slices.Clone(asymmetric), func(a string) bool { return !slices.Contains(m.Algorithms, a) })
	}
	if len(algorithms) == 0 {
		return nil, n.trouble(StageDiscovery, ClassSignature,
			"the provider signs ID tokens with no asymmetric algorithm; choose one there, for instance RS256 or ES256")
	}
	p := &provider{
		issuer:         m.Issuer,
		oauth:          n.oauthConfig(e.AuthURL, e.TokenURL),
		userInfo:       m.UserInfo,
		issuerRequired: m.IssuerRequired,
		keysAt:         m.Keys,
		keys:           n.keysAt(m.Keys),
		algorithms:     algorithms,
	}
	if n.settings.UserInfoEndpoint != "" {
		p.userInfo = n.settings.UserInfoEndpoint
	}
	return p, nil
}

// checkDiscovered is checkURL, and no plain http named by a provider that itself is asked by https: its metadata must not lead
// the code, or this process, to services on this machine.
func (n *Network) checkDiscovered(raw string) error {
	if err := checkURL(raw); err != nil {
		return err
	}
	if strings.HasPrefix(n.settings.Issuer, "https:") && !strings.HasPrefix(raw, "https:") {
		return errors.New("must be https")
	}
	return nil
}
