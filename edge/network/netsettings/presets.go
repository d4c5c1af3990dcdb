package netsettings

import (
	"strconv"
	"time"
)

// The kinds of network that need a client alone: everything else is in the table below.
const (
	KindDiscord   = "discord"
	KindGitHub    = "github"
	KindGitLab    = "gitlab"
	KindGoogle    = "google"
	KindMicrosoft = "microsoft"
	KindRoblox    = "roblox"
	KindSteam     = "steam" // OpenID 2.0, which has no client either
	KindTwitch    = "twitch"
	KindVATSIM    = "vatsim"
)

// ProtocolOpenID2 is the protocol of Steam; the other protocols have the names of the kinds oidc and oauth2.
const ProtocolOpenID2 = "openid2"

// preset is what is known about a network beforehand.
type preset struct {
	name     string // for users
	protocol string // KindOIDC, KindOAuth2 or ProtocolOpenID2

	issuer        string // for oauth2: compared with iss if a return carries it
	issuerOpen    bool   // the operator may set another: his own instance, or one tenant
	authorization string // oauth2 and openid2
	token         string // oauth2
	userInfo      string // oauth2
	authStyle     string

	scopes   []string // the least that gives a stable subject
	subject  string   // the claim that identifies the user permanently
	platform string   // whose user ids its subjects are, at its own issuer; empty: nobody's
	names    []string // claims with a name for people, best first; empty: the usual ones

	// the parameters that have a user sign in again, or at least answer; nil: those of the protocol
	again map[string]string

	email   Fact // its address; claims.verifiedEmail says when it counts
	created Fact // when the account was made
	groups  Fact // the groups of the user
}

// Fact is where a network reports what a rule needs. The zero value: nowhere.
type Fact struct {
	Claim    string // path in the ID token or user info; in a List: in each of its elements
	Verified string // for the e-mail address: the member next to it that must be true
	Scope    string // requested only if a rule needs the fact
	// the claims parameter, for a provider that reports the fact on request (OpenID Connect Core 1.0 §5.5)
	Request string
	List    string // the address of a list of its own, requested only if a rule needs the fact
	// Of derives the instant from the subject, if that carries it.
	Of func(subject string) (time.Time, error)
}

// Reported reports whether the network reports the fact at all.
func (f Fact) Reported() bool { return f.Claim != "" || f.Of != nil }

// standardEmail is the address as OpenID Connect Core 1.0 §5.1 and §5.4 define it.
var standardEmail = Fact{Claim: "email", Verified: "email_verified", Scope: "email"}

// presets is the table of networks that are known by name. Scopes are the least that gives a stable subject:
// a name for people is never shown, so no scope is requested for it. A fact that a rule needs adds its scope
// when the rule is set.
//
// The issuer of an oauth2 network is compared with iss if the return carries one (RFC 9207 §2.4), and is not
// required: its metadata is not fetched, and a promise in a table grows old. The network's own redirect URI
// prevents a mix-up (RFC 9700 §4.4.2.2).
//
// Each network's sources are listed above it, read again in November 2026. A fact that they do not state is
// marked as such, with what it rests on.
var presets = map[string]preset{
	// https://docs.discord.com/developers/topics/oauth2 (endpoints, scopes; forms alone at the token
	// endpoint) https://docs.discord.com/developers/resources/user#user-object (id, global_name, email,
	// verified) https://docs.discord.com/developers/reference#snowflakes (the id holds its instant)
	// https://docs.discord.com/developers/resources/user#get-current-user-guilds (200, the most that a user
	// can be in) Not in these pages: S256, the one method that is taken
	// (https://github.com/discord/discord-api-docs/pull/7046); and the issuer, which returns carry as iss, as
	// clients report and https://discord.com/.well-known/openid-configuration has it. There is no ID token.
	// prompt=consent asks whoever is signed in there once more; nothing asks for the password.
	KindDiscord: { //nolint:gosec // the address of a token endpoint is no credential
		name: "Discord", protocol: KindOAuth2, issuer: "https://discord.com",
		authorization: "https://discord.com/oauth2/authorize",
		token:         "https://discord.com/api/oauth2/token",
		userInfo:      "https://discord.com/api/v10/users/@me",
		scopes:        []string{"identify"}, subject: "id", platform: "discord",
		names:   []string{"global_name", "username"},
		again:   map[string]string{"prompt": "consent"},
		email:   Fact{Claim: "email", Verified: "verified", Scope: "email"},
		created: Fact{Of: snowflakeInstant},
		groups:  Fact{Claim: "id", List: "https://discord.com/api/v10/users/@me/guilds", Scope: "guilds"},
	},
	// https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps (endpoints,
	// client in the body, S256 alone; without Accept: application/json the answer is a form; the one prompt
	// is select_account)
	// https://docs.github.com/en/apps/oauth-apps/maintaining-oauth-apps/troubleshooting-oauth-app-access-token-request-errors
	// (errors; that they come with status 200 is not said there, and clients report it)
	// https://github.com/.well-known/oauth-authorization-server/login/oauth (issuer, by RFC 8414 §3.1)
	// https://docs.github.com/en/rest/users/users#get-the-authenticated-user (id, login, name, created_at; no
	// scope for public data). login can be changed and taken by another, id cannot.
	// https://docs.github.com/en/rest/users/emails#list-email-addresses-for-the-authenticated-user
	// https://docs.github.com/en/rest/orgs/orgs#list-organizations-for-the-authenticated-user
	KindGitHub: { //nolint:gosec // the address of a token endpoint is no credential
		name: "GitHub", protocol: KindOAuth2, issuer: "https://github.com/login/oauth",
		authorization: "https://github.com/login/oauth/authorize",
		token:         "https://github.com/login/oauth/access_token",
		userInfo:      "https://api.github.com/user",
		authStyle:     AuthParams, subject: "id", platform: "github", names: []string{"name", "login"},
		again: map[string]string{"prompt": "select_account"},
		email: Fact{
			Claim: "email", Verified: "verified", List: "https://api.github.com/user/emails?per_page=100",
			Scope: "user:email",
		},
		created: Fact{Claim: "created_at"},
		groups: Fact{
			Claim: "login", List: "https://api.github.com/user/orgs?per_page=100", Scope: "read:org",
		},
	},
	// https://docs.gitlab.com/integration/openid_connect_provider/ (discovery, claims; groups, the whole
	// paths of groups with those that the user inherits, come by user info alone, and groups_direct in the ID
	// token). issuer may be a self-managed instance's.
	KindGitLab: {
		name: "GitLab", protocol: KindOIDC, issuer: "https://gitlab.com", issuerOpen: true,
		platform: "gitlab",
		scopes:   []string{scopeOpenID}, subject: ClaimSubject,
		email: standardEmail, groups: Fact{Claim: "groups"},
	},
	// https://developers.google.com/identity/openid-connect/reference (discovery, claims; sub is never given
	// to another account; email and email_verified come with the scope email; hd is the Workspace or Cloud
	// organisation's domain, and missing for other accounts; prompt is none, consent or select_account, and
	// nothing is said of max_age)
	KindGoogle: {
		name: "Google", protocol: KindOIDC, issuer: "https://accounts.google.com", platform: "google",
		scopes: []string{scopeOpenID}, subject: ClaimSubject,
		again: map[string]string{"prompt": "select_account"},
		email: standardEmail, groups: Fact{Claim: "hd"},
	},
	// https://learn.microsoft.com/en-us/entra/identity-platform/v2-protocols-oidc (discovery; common,
	// organizations, consumers or a tenant)
	// https://learn.microsoft.com/en-us/entra/identity-platform/id-token-claims-reference: sub is immutable,
	// never reused, and pairwise: another client id gets another one. email "isn't guaranteed to be
	// correct", so that it counts for nothing here; tid is the tenant, for personal accounts
	// 9188040d-6c67-4c5b-b112-36a304b66dad. Names come with the scope profile alone.
	KindMicrosoft: {
		name: "Microsoft", protocol: KindOIDC, issuer: microsoftAnyTenant, issuerOpen: true,
		authStyle: AuthParams,
		scopes:    []string{scopeOpenID}, subject: ClaimSubject,
		groups: Fact{Claim: "tid"},
	},
	// https://create.roblox.com/docs/cloud/auth/oauth2-reference (discovery at
	// https://apis.roblox.com/oauth/, with the slash; S256; Basic or body; a code lives for one minute; sub
	// is the user id, while names change; created_at in Unix seconds, with the scope profile)
	KindRoblox: {
		name: "Roblox", protocol: KindOIDC, issuer: "https://apis.roblox.com/oauth/", platform: "roblox",
		scopes: []string{scopeOpenID}, subject: ClaimSubject,
		created: Fact{Claim: "created_at", Scope: "profile"},
	},
	// https://steamcommunity.com/dev and https://partner.steamgames.com/doc/features/auth#website (OpenID
	// 2.0; the claimed id holds the 64-bit Steam id). They write the claimed id with http; what is asserted
	// has https, as clients read it.
	KindSteam: {
		name: "Steam", protocol: ProtocolOpenID2, platform: "steam",
		authorization: "https://steamcommunity.com/openid/login",
	},
	// https://dev.twitch.tv/docs/authentication/getting-tokens-oidc/ (discovery, client in the body; the
	// address comes by the claims parameter and the scope user:read:email. Nothing is said of PKCE: the
	// challenge that is sent is not relied on, the nonce is; force_verify asks the user once more)
	KindTwitch: {
		name: "Twitch", protocol: KindOIDC, issuer: "https://id.twitch.tv/oauth2", authStyle: AuthParams,
		platform: "twitch",
		scopes:   []string{scopeOpenID}, subject: ClaimSubject,
		again: map[string]string{"force_verify": "true"},
		email: Fact{
			Claim: "email", Verified: "email_verified", Scope: "user:read:email",
			Request: `{"id_token":{"email":null,"email_verified":null}}`,
		},
	},
	// https://vatsim.dev/api/connect-api/ and its source,
	// https://github.com/vatsimnetwork/vatsim.dev/blob/main/openapi/connect.yaml (endpoints, client in the
	// body, scopes; nothing says that the address is verified, nor anything of PKCE). It draws the user
	// without the member data around it, in which public clients find it.
	KindVATSIM: { //nolint:gosec // the address of a token endpoint is no credential
		name: "VATSIM", protocol: KindOAuth2, platform: "vatsim",
		authorization: "https://auth.vatsim.net/oauth/authorize",
		token:         "https://auth.vatsim.net/oauth/token",
		userInfo:      "https://auth.vatsim.net/api/user",
		authStyle:     AuthParams, scopes: []string{"vatsim_details"}, subject: "data.cid",
		names:  []string{"data.cid"},
		groups: Fact{Claim: "data.vatsim.division.id"},
	},
}

// discordEpoch is the first millisecond of 2015, where Discord's snowflakes begin.
const discordEpoch = 1420070400000

// snowflakeInstant is when a Discord id was issued: its upper 42 bits are milliseconds.
func snowflakeInstant(id string) (time.Time, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(int64(n>>22) + discordEpoch), nil
}

// Protocol is the protocol that the network speaks.
func (s Settings) Protocol() string {
	if p, ok := presets[s.Kind]; ok {
		return p.protocol
	}
	return s.Kind
}

// withPreset fills in what the table knows. checkPreset refuses settings that the operator may not set, so
// none of them is lost.
func (s Settings) withPreset(p preset) Settings {
	fill := func(setting *string, value string) {
		if *setting == "" {
			*setting = value
		}
	}
	fill(&s.ID, s.Kind)
	fill(&s.Name, p.name)
	fill(&s.Issuer, p.issuer)
	fill(&s.AuthStyle, p.authStyle)
	// another instance's user ids are not those of the platform that integrators mean
	if s.Platforms == nil && p.platform != "" && s.Issuer == p.issuer {
		s.Platforms = []string{p.platform}
	}
	fill(&s.SubjectClaim, p.subject)
	if len(s.Scopes) == 0 {
		s.Scopes = p.scopes
	}
	if p.protocol == KindOAuth2 {
		fill(&s.AuthorizationEndpoint, p.authorization)
		fill(&s.TokenEndpoint, p.token)
		fill(&s.UserInfoEndpoint, p.userInfo)
	}
	return s
}
