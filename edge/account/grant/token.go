package grant

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/entry"
	"verifyd/edge/account/input"
	"verifyd/edge/account/secrets"
)

// Scope is a part of the management interface that an operator token opens.
type Scope string

// The scopes. Write scopes include reading: each change is answered with its result.
const (
	AccountsRead  Scope = "accounts:read"
	AccountsWrite Scope = "accounts:write"
	KeysRead      Scope = "keys:read"
	KeysWrite     Scope = "keys:write"
	MembersRead   Scope = "members:read"
	MembersWrite  Scope = "members:write"
	NetworksRead  Scope = "networks:read"
	// SecretsWrite: rotate callback signing secrets. When they were made is read with the account.
	SecretsWrite Scope = "secrets:write"
	AuditRead    Scope = "audit:read" // who changed what, with members' names and identities
)

// Scopes are all scopes.
func Scopes() []Scope {
	return []Scope{
		AccountsRead, AccountsWrite, KeysRead, KeysWrite, MembersRead, MembersWrite, NetworksRead,
		SecretsWrite, AuditRead,
	}
}

// Allows reports whether the grant of an operator token includes a scope.
func (g Grant) Allows(s Scope) bool {
	of, _ := strings.CutSuffix(string(s), ":read")
	return slices.Contains(g.Scopes, s) || slices.Contains(g.Scopes, Scope(of+":write"))
}

const (
	// MaxToken bounds how long an operator token works: tokens are forgotten after that, and a job that runs
	// once a year still works.
	MaxToken = 366 * 24 * time.Hour
	// expiredTokens is how long an operator token is known as an expired one, so that who still sends it
	// reads why it fails.
	expiredTokens = 30 * 24 * time.Hour
)

// TokenState is what becomes of an operator token's requests.
type TokenState string

// The states of an operator token.
const (
	TokenActive  TokenState = "active"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// State returns the state of the grant of an operator token at an instant.
func (g Grant) State(now time.Time) TokenState {
	switch {
	case !g.Ended.IsZero():
		return TokenRevoked
	case !g.holds(now):
		return TokenExpired
	default:
		return TokenActive
	}
}

// operatorTokens makes and ends operator tokens.
type operatorTokens struct{ s *Store }

// CreateToken makes an operator token and returns it, this once. Its errors are ErrNotAllowed for actors
// other than the command line, natsconf.ErrCredential and an *input.Error.
func (t operatorTokens) CreateToken(ctx context.Context, by access.Actor, name string, scopes []Scope,
	until time.Time) (token string, g Grant, err error) {
	if err := checkToken(name, scopes, until, t.s.log.Instant()); err != nil {
		return "", Grant{}, err
	}
	token = secrets.NewOperatorToken()
	digest, _ := secrets.ParseOperatorToken(token) // it has just been made in that form
	scopes = slices.Compact(slices.Sorted(slices.Values(scopes)))
	g = Grant{
		Token: secrets.ShortID(access.TokenPrefix, digest), Digest: digest, Name: name, Scopes: scopes,
		By: by.String(), Since: t.s.log.Instant(), Until: until.UTC().Truncate(time.Millisecond),
	}
	err = t.s.decide(ctx, by, audit.TokenCreated, g, func(Grant, error) (Grant, error) { return g, nil })
	return token, g, err
}

func checkToken(name string, scopes []Scope, until, now time.Time) error {
	if err := input.Text("name", name, input.KeyNameBytes); err != nil || name == "" {
		return cmp.Or(err, error(input.Wrong("name",
			"give the token a name, for example deploy: the audit log shows it")))
	}
	for _, scope := range scopes {
		if !slices.Contains(Scopes(), scope) {
			return input.Wrong("scope", "%.40q is not a scope; use %s", scope, join(Scopes(), ", "))
		}
	}
	if len(scopes) == 0 {
		return input.Wrong("scope", "give one or more of %s", join(Scopes(), ", "))
	}
	if !until.After(now) || until.After(now.Add(MaxToken)) {
		return input.Wrong("expires", "%s has passed, or is more than %d days away; give a time between, "+
			"for example 90d", entry.Stamp(until), MaxToken/(24*time.Hour))
	}
	return nil
}

// join lists scopes, with a separator between them.
func join(scopes []Scope, separator string) string {
	all := make([]string, len(scopes))
	for i, s := range scopes {
		all[i] = string(s)
	}
	return strings.Join(all, separator)
}

// RevokeToken ends an operator token, named by its id, also one that has expired. Each request reads it. Its
// errors are ErrNoToken, natsconf.ErrCredential, and ErrNotAllowed for actors other than the command line.
func (t operatorTokens) RevokeToken(ctx context.Context, by access.Actor, id string) error {
	return t.s.revoke(ctx, by, audit.TokenRevoked, Grant{Token: id})
}

// Tokens lists the operator tokens that are known, those that have ended a while ago among them, by age.
func (t operatorTokens) Tokens(ctx context.Context) ([]Grant, error) {
	tokens, err := t.s.decisions(ctx, tokenGrants.entry)
	if err != nil {
		return nil, fmt.Errorf("list operator tokens: %w", err)
	}
	slices.SortFunc(tokens, func(a, b Grant) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Token, b.Token))
	})
	return tokens, nil
}

// Token returns the grant of an operator token, as the leader has it; State reports whether it is in force.
// The error is secrets.ErrMalformedKey for what has not the form of one, and ErrNoToken for one that is not
// known.
func (t operatorTokens) Token(ctx context.Context, token string) (Grant, error) {
	digest, ok := secrets.ParseOperatorToken(token)
	if !ok {
		return Grant{}, secrets.ErrMalformedKey
	}
	g, err := t.TokenGrant(ctx, secrets.ShortID(access.TokenPrefix, digest))
	if err != nil {
		return Grant{}, err
	}
	if subtle.ConstantTimeCompare([]byte(g.Digest), []byte(digest)) != 1 {
		return Grant{}, ErrNoToken
	}
	return g, nil
}

// TokenGrant is Token by the token's id.
func (t operatorTokens) TokenGrant(ctx context.Context, id string) (Grant, error) {
	to := Grant{Token: id}
	g, _, err := t.s.grant(ctx, to)
	if errors.Is(err, ErrNoToken) && g.isOf(to) {
		err = nil // it has ended or expired
	}
	return g, err
}

// detail is what the record of a decision says of the grant.
func (g Grant) detail() map[string]string {
	detail := map[string]string{"role": string(g.Role), "name": g.Name}
	if g.Token != "" && g.Ended.IsZero() {
		detail["scopes"], detail["until"] = join(g.Scopes, " "), entry.Stamp(g.Until)
	}
	return detail
}
