package netsettings

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
)

// The kinds of identity network.
const (
	KindOIDC = "oidc" // OpenID Connect: everything but the issuer and the client comes from discovery
	// KindOAuth2: plain OAuth 2: three endpoints, and a field of the user-info answer that identifies the
	// user
	KindOAuth2 = "oauth2"
)

// How the client shows its secret at the token endpoint (RFC 6749 §2.3.1). It is stated and not found out by
// trying, since a try that fails has already sent the code.
const (
	AuthHeader = "header" // HTTP Basic
	AuthParams = "params" // client_id and client_secret in the body
)

// ClaimSubject is the claim of OpenID Connect that identifies the user.
const ClaimSubject = "sub"

const (
	scopeOpenID    = "openid"
	maxIDLen       = 32
	maxNameRunes   = 64
	maxSecretBytes = 4096 // a client secret in a file: anything longer is the wrong file
)

// Settings defines how to reach one identity network: one entry of VERIFYD_NETWORKS_FILE, or the
// VERIFYD_NETWORK_… variables.
type Settings struct { //nolint:recvcheck // targets fills the settings in; all else reads them
	// in the redirect URI, logs and completions: a–z, 0–9 and hyphen, at most 32 characters
	ID   string `yaml:"id"`
	Name string `yaml:"name"` // for users: "Continue with NAME"
	// "oidc", "oauth2", or a network that is known by name, which needs no more than a client
	Kind string `yaml:"kind"`

	// Issuer is the provider's issuer identifier, exactly as its metadata spells it. Required for oidc. For
	// oauth2 it is optional and, when set, compared with the iss parameter of returns (RFC 9207).
	Issuer                string `yaml:"issuer"`
	AuthorizationEndpoint string `yaml:"authorization_endpoint"` // oauth2 only
	TokenEndpoint         string `yaml:"token_endpoint"`         // oauth2 only
	// UserInfoEndpoint is required for oauth2. For oidc it is optional: if set, it is requested in every
	// sign-in; otherwise the discovered one is requested only for a subject claim that the ID token lacks.
	UserInfoEndpoint string `yaml:"user_info_endpoint"`

	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret"` // this or ClientSecretFile
	// path of a file with the secret alone; white space around it is dropped
	ClientSecretFile string `yaml:"client_secret_file"`
	// AuthStyle is "header" or "params"; empty: what the provider's metadata offer, header first.
	AuthStyle string `yaml:"auth_style"`

	Scopes []string `yaml:"scopes"` // default for oidc: openid alone; oauth2 requests none unless set
	// SubjectClaim is the field that identifies the user permanently, default "sub": a top-level name, a
	// dotted path (data.0.id) or a JSON Pointer (/data/0/id, RFC 6901). Its value is text or a whole number.
	// The claim "email" counts only together with email_verified, which an oauth2 network may leave out.
	SubjectClaim string `yaml:"subject_claim"`
	Prompt       string `yaml:"prompt"` // sent as prompt, for instance "select_account"; default none
	// CreatedClaim is where the network reports when the account was made: Unix seconds or RFC 3339.
	// GroupsClaim is where it reports groups: a text or a list of texts; default "groups". Both are paths
	// like SubjectClaim.
	CreatedClaim string `yaml:"created_claim"`
	GroupsClaim  string `yaml:"groups_claim"`

	// IdentitiesOf is for a provider that has moved to another address, or is spoken to in another way: the
	// issuer that its identities were known under before, so that they stay the same. If the provider is a
	// different one, it would hand these to strangers.
	IdentitiesOf string `yaml:"identities_of"`

	Rules `yaml:",inline"`

	// Platforms are the platforms, as integrators write them in any letter case, whose user ids are the
	// network's subjects: a sign-in with it proves who has the account there. AnyPlatform stands for all. A
	// network that is known by name has its own; an empty list removes it.
	Platforms []string `yaml:"platforms"`
	// PlatformOnly: users sign in with it to prove a platform account, never to say who they are.
	PlatformOnly bool `yaml:"platform_only"`

	// Dashboard lets integrators log in to the dashboard through this network. It then has a second redirect
	// URI there, {base_url}/dashboard/login/{id}/callback.
	Dashboard bool `yaml:"dashboard"`
}

// AnyPlatform in Platforms stands for every platform.
const AnyPlatform = "*"

// Proves reports whether the network's subjects are the user ids of a platform.
func (s Settings) Proves(platform string) bool {
	return slices.ContainsFunc(s.Platforms, func(p string) bool {
		return p == AnyPlatform || strings.EqualFold(p, platform)
	})
}

// String keeps client secrets out of logs and error texts.
func (s Settings) String() string { return fmt.Sprintf("network.Settings(%q, secrets hidden)", s.ID) }

// GoString keeps them out of %#v as well.
func (s Settings) GoString() string { return s.String() }

// NetworkID returns the network's id, also if it was left out: a network known by name then has that name as
// its id.
func (s Settings) NetworkID() string { return s.withDefaults().ID }

// IdentityIssuer names the issuer of the network's subjects: its issuer; for kind oauth2, for which the
// issuer may be left out and vouches for nothing, the user-info address; for a network known by name that has
// none, its sign-in address. The same subject of another issuer is somebody else.
func (s Settings) IdentityIssuer() string {
	s = s.withDefaults()
	switch {
	case s.IdentitiesOf != "":
		return s.IdentitiesOf
	case s.Kind == KindOAuth2:
		return s.UserInfoEndpoint
	case s.Issuer != "":
		return s.Issuer
	}
	return s.SignInAddress()
}

// SignInAddress is the address at which a network of ProtocolOpenID2 signs people in.
func (s Settings) SignInAddress() string { return presets[s.Kind].authorization }

// withDefaults fills what was left out.
func (s Settings) withDefaults() Settings {
	if p, ok := presets[s.Kind]; ok {
		s = s.withPreset(p)
	}
	if s.SubjectClaim == "" {
		s.SubjectClaim = ClaimSubject
	}
	if len(s.Scopes) == 0 && s.Kind == KindOIDC {
		s.Scopes = []string{scopeOpenID}
	}
	if s.OneIdentityPer != "" && s.OneIdentityFor == 0 {
		s.OneIdentityFor = defaultOneIdentityFor
	}
	return s
}

// Checked returns the settings with their defaults filled, or all their faults at once.
func (s Settings) Checked() (Settings, error) {
	full := s.withDefaults()
	c := checker{full}
	return full, errors.Join(c.validate(), c.checkPreset(s))
}

// wrong is the form of every error about a setting: which network, which setting, what is valid.
func (s Settings) wrong(setting, format string, args ...any) error {
	return fmt.Errorf("network %q: %s: %w", s.ID, setting, fmt.Errorf(format, args...))
}

// CheckURL accepts a URL that may be requested for an identity: https, or plain http on this machine alone.
// Its errors do not repeat the value, which may hold a password.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("not an absolute URL; right would be https://accounts.example.com")
	case u.User != nil:
		return errors.New("holds a user name or password; leave them out")
	case strings.Contains(raw, "#"):
		return errors.New("has a fragment; leave out what follows #")
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	}
	return errors.New("must be https; plain http is only for 127.0.0.0/8, ::1 and localhost")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Secret returns the client secret, from its file if it has one.
func (s Settings) Secret() (string, error) {
	if s.ClientSecretFile == "" { // Steam has neither
		return s.ClientSecret, nil
	}
	b, err := os.ReadFile(s.ClientSecretFile)
	if err != nil {
		return "", s.wrong("client_secret_file", "%w", err)
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" || len(secret) > maxSecretBytes {
		return "", s.wrong("client_secret_file", "must hold only the secret, 1 to %d bytes", maxSecretBytes)
	}
	return secret, nil
}

// maxDetailBytes bounds what texts from outside add to a log line.
const maxDetailBytes = 200

// Plain makes a text from outside fit for one log line: printable ASCII, bounded.
func Plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxDetailBytes)]
}
