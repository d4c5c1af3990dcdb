package network

import (
	"errors"
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

// protocolOpenID2 is what Steam speaks; the other protocols have the names of the kinds oidc and oauth2.
const protocolOpenID2 = "openid2"

// preset is what is known about a network beforehand.
type preset struct {
	name     string // for users
	protocol string // KindOIDC, KindOAuth2 or protocolOpenID2

	issuer        string // for oauth2: compared with iss where a return carries it
	issuerOpen    bool   // the operator may set another: his own instance, or one tenant
	authorization string // oauth2 and openid2
	token         string // oauth2
	userInfo      string // oauth2
	authStyle     string

	scopes  []string // the least that gives a stable subject
	subject string   // the claim that identifies the user for ever
	names   []string // claims with a name for people, best first; empty: the usual ones

	email   fact // its address; claims.verifiedEmail says when it counts
	created fact // when the account was made
	groups  fact // what the user belongs to
}

// fact is where a network reports what a rule needs. The zero value: nowhere.
type fact struct {
	claim    string // path in the ID token or user info; in a list: in each of its elements
	verified string // for the e-mail address: the member beside it that must be true
	scope    string // asked for only where a rule needs the fact
	// the claims parameter, for a provider that reports the fact on request (OpenID Connect Core 1.0 §5.5)
	request string
	list    string // the address of a list of its own, asked only where a rule needs the fact
	// of derives the instant from the subject, where it carries it.
	of func(subject string) (time.Time, error)
}

// told reports whether the network reports the fact at all.
func (f fact) told() bool { return f.claim != "" || f.of != nil }

// standardEmail is the address as OpenID Connect Core 1.0 §5.1 and §5.4 have it.
var standardEmail = fact{claim: "email", verified: "email_verified", scope: "email"}

// presets is the table of networks that are known by name. Scopes are the least that gives a stable subject:
// a name for people is shown to nobody, so no scope is asked for its sake. What a rule needs adds its scope
// when the rule is set.
//
// An issuer of an oauth2 network is compared with iss where the return carries one (RFC 9207 §2.4), and not
// demanded: its metadata is not fetched, and a promise in a table grows old. The redirect URI of its own
// holds a mix-up off (RFC 9700 §4.4.2.2).
//
// Each network's sources stand above it, read again in November 2026. What they do not say is marked as such,
// with what it rests on.
var presets = map[string]preset{
	// https://docs.discord.com/developers/topics/oauth2 (endpoints, scopes; forms alone at the token
	// endpoint) https://docs.discord.com/developers/resources/user#user-object (id, global_name, email,
	// verified) https://docs.discord.com/developers/reference#snowflakes (the id holds its instant)
	// https://docs.discord.com/developers/resources/user#get-current-user-guilds (200, the most that a user
	// can be in) Not in these pages: S256, the one method that is taken
	// (https://github.com/discord/discord-api-docs/pull/7046); and the issuer, which returns carry as iss, as
	// clients report and https://discord.com/.well-known/openid-configuration has it. There is no ID token.
	KindDiscord: { //nolint:gosec // the address of a token endpoint is no credential
		name: "Discord", protocol: KindOAuth2, issuer: "https://discord.com",
		authorization: "https://discord.com/oauth2/authorize",
		token:         "https://discord.com/api/oauth2/token",
		userInfo:      "https://discord.com/api/v10/users/@me",
		scopes:        []string{"identify"}, subject: "id", names: []string{"global_name", "username"},
		email:   fact{claim: "email", verified: "verified", scope: "email"},
		created: fact{of: snowflakeInstant},
		groups:  fact{claim: "id", list: "https://discord.com/api/v10/users/@me/guilds", scope: "guilds"},
	},
	// https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps (endpoints,
	// client in the body, S256 alone; without Accept: application/json the answer is a form)
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
		authStyle:     AuthParams, subject: "id", names: []string{"name", "login"},
		email: fact{
			claim: "email", verified: "verified", list: "https://api.github.com/user/emails?per_page=100",
			scope: "user:email",
		},
		created: fact{claim: "created_at"},
		groups: fact{
			claim: "login", list: "https://api.github.com/user/orgs?per_page=100", scope: "read:org",
		},
	},
	// https://docs.gitlab.com/integration/openid_connect_provider/ (discovery, claims; groups, the whole
	// paths of groups with those that the user inherits, come by user info alone, and groups_direct in the ID
	// token). issuer may be a self-managed instance's.
	KindGitLab: {
		name: "GitLab", protocol: KindOIDC, issuer: "https://gitlab.com", issuerOpen: true,
		scopes: []string{scopeOpenID}, subject: claimSubject,
		email: standardEmail, groups: fact{claim: "groups"},
	},
	// https://developers.google.com/identity/openid-connect/reference (discovery, claims; sub is never given
	// to another account; email and email_verified come with the scope email; hd is the Workspace or Cloud
	// organisation's domain, and missing for other accounts)
	KindGoogle: {
		name: "Google", protocol: KindOIDC, issuer: "https://accounts.google.com",
		scopes: []string{scopeOpenID}, subject: claimSubject,
		email: standardEmail, groups: fact{claim: "hd"},
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
		scopes:    []string{scopeOpenID}, subject: claimSubject,
		groups: fact{claim: "tid"},
	},
	// https://create.roblox.com/docs/cloud/auth/oauth2-reference (discovery at
	// https://apis.roblox.com/oauth/, with the slash; S256; Basic or body; a code lives for one minute; sub
	// is the user id, while names change; created_at in Unix seconds, with the scope profile)
	KindRoblox: {
		name: "Roblox", protocol: KindOIDC, issuer: "https://apis.roblox.com/oauth/",
		scopes: []string{scopeOpenID}, subject: claimSubject,
		created: fact{claim: "created_at", scope: "profile"},
	},
	// https://steamcommunity.com/dev and https://partner.steamgames.com/doc/features/auth#website (OpenID
	// 2.0; the claimed id holds the 64-bit Steam id). They write the claimed id with http; what is asserted
	// has https, as clients read it.
	KindSteam: {
		name: "Steam", protocol: protocolOpenID2,
		authorization: "https://steamcommunity.com/openid/login",
	},
	// https://dev.twitch.tv/docs/authentication/getting-tokens-oidc/ (discovery, client in the body; the
	// address comes by the claims parameter and the scope user:read:email. Nothing is said of PKCE: the
	// challenge that is sent is not relied on, the nonce is)
	KindTwitch: {
		name: "Twitch", protocol: KindOIDC, issuer: "https://id.twitch.tv/oauth2", authStyle: AuthParams,
		scopes: []string{scopeOpenID}, subject: claimSubject,
		email: fact{
			claim: "email", verified: "email_verified", scope: "user:read:email",
			request: `{"id_token":{"email":null,"email_verified":null}}`,
		},
	},
	// https://vatsim.dev/api/connect-api/ and its source,
	// https://github.com/vatsimnetwork/vatsim.dev/blob/main/openapi/connect.yaml (endpoints, client in the
	// body, scopes; nothing says that the address is verified, nor anything of PKCE). It draws the user
	// without the member data around it, in which public clients find it.
	KindVATSIM: { //nolint:gosec // the address of a token endpoint is no credential
		name: "VATSIM", protocol: KindOAuth2,
		authorization: "https://auth.vatsim.net/oauth/authorize",
		token:         "https://auth.vatsim.net/oauth/token",
		userInfo:      "https://auth.vatsim.net/api/user",
		authStyle:     AuthParams, scopes: []string{"vatsim_details"}, subject: "data.cid",
		names:  []string{"data.cid"},
		groups: fact{claim: "data.vatsim.division.id"},
	},
}

// discordEpoch is the first millisecond of 2015, where Discord's snowflakes begin.
const discordEpoch = 1420070400000

// snowflakeInstant is when a Discord id was given out: its upper 42 bits are milliseconds.
func snowflakeInstant(id string) (time.Time, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(int64(n>>22) + discordEpoch), nil
}

// protocol is what the network speaks.
func (s Settings) protocol() string {
	if p, ok := presets[s.Kind]; ok {
		return p.protocol
	}
	return s.Kind
}

// withPreset fills in what the table knows. What the operator may not set is refused by checkPreset, so
// nothing of his is lost.
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

// checkPreset refuses settings that a preset decides; written are the settings without their defaults.
func (s Settings) checkPreset(written Settings) error {
	p, ok := presets[s.Kind]
	if !ok {
		return nil
	}
	var errs []error
	for _, set := range []struct{ setting, value string }{
		{"authorization_endpoint", written.AuthorizationEndpoint},
		{"token_endpoint", written.TokenEndpoint},
		{"user_info_endpoint", written.UserInfoEndpoint},
		{"subject_claim", written.SubjectClaim},
		{"auth_style", written.AuthStyle},
		{"created_claim", written.CreatedClaim},
	} {
		if set.value != "" {
			errs = append(errs, s.wrong(set.setting,
				"leave it out: kind %s knows its own; to set it, use kind oidc or oauth2", s.Kind))
		}
	}
	if written.Issuer != "" && !p.issuerOpen {
		errs = append(errs, s.wrong("issuer", "leave it out: kind %s knows its own", s.Kind))
	}
	return errors.Join(errs...)
}
