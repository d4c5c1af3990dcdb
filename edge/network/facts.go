package network

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

// maxEmailBytes is the longest address that mail can be sent to (RFC 5321 §4.5.3.1.3).
const maxEmailBytes = 254

// reportsWanted reports whether an ID token holds all claims that the rules judge by, so that user info need
// not be requested.
func (ic *infoClient) reportsWanted(id claims) bool {
	for _, f := range ic.settings.Wanted() {
		if f.Claim != "" && f.List == "" && !id.has(f.Claim) {
			return false
		}
	}
	return true
}

// addFacts adds what the provider reported about the identity beyond its subject. If a fact that a rule needs
// and the provider should have reported is missing, that is an error and not a refusal: the fault is not the
// user's.
func (ic *infoClient) addFacts(ctx context.Context, id *Identity, token *oauth2.Token, docs []claims) error {
	var err error
	if id.CreatedAt, err = ic.createdAt(id.Subject, docs); err != nil && ic.settings.MinAccountAge > 0 {
		return ic.newError(StageUserInfo, ClassMalformed,
			"it does not report when the account was created, which min_account_age needs")
	}
	if id.Email, err = ic.email(ctx, token, docs); err != nil {
		return err
	}
	if len(ic.settings.RequireGroups) == 0 {
		return nil
	}
	id.Groups, err = ic.groups(ctx, token, docs)
	return err
}

// createdAt is when the account was made: zero if the network does not report it. The error means that it
// reported something else.
func (ic *infoClient) createdAt(subject string, docs []claims) (time.Time, error) {
	f := ic.plan.Created
	if f.Of != nil {
		return f.Of(subject)
	}
	for _, doc := range docs {
		if f.Claim != "" && doc.has(f.Claim) {
			return doc.instant(f.Claim)
		}
	}
	return time.Time{}, errNotReported
}

// email is the address that the provider claims to have verified; empty if there is none.
func (ic *infoClient) email(ctx context.Context, token *oauth2.Token, docs []claims) (string, error) {
	f := ic.plan.Email
	if f.List == "" {
		for _, doc := range docs {
			if address := ic.verifiedEmail(doc, f); address != "" {
				return address, nil
			}
		}
		return "", nil
	}
	if !ic.asked(f) {
		return "", nil
	}
	entries, err := ic.askList(ctx, f.List, token)
	if err != nil {
		return "", err
	}
	return ic.pickEmail(entries, f), nil
}

// asked reports whether the fact's scope is requested, for a rule or because the operator's scopes include
// it.
func (ic *infoClient) asked(f netsettings.Fact) bool {
	return slices.Contains(ic.settings.AskedScopes(), f.Scope)
}

// pickEmail returns the verified address of a list that the rules accept, otherwise the primary one.
func (ic *infoClient) pickEmail(entries []claims, f netsettings.Fact) string {
	best := ""
	for _, e := range entries {
		address := ic.verifiedEmail(e, f)
		switch {
		case address == "":
		case ic.settings.AcceptsDomain(address):
			return address
		case best == "" || e.isTrue("primary"):
			best = address
		}
	}
	return best
}

// groups are the groups of the identity: none if the provider reports none.
func (ic *infoClient) groups(ctx context.Context, token *oauth2.Token, docs []claims) ([]string, error) {
	f := ic.plan.Groups
	if f.List == "" {
		for _, doc := range docs {
			if doc.has(f.Claim) {
				return doc.texts(f.Claim), nil
			}
		}
		return nil, nil
	}
	entries, err := ic.askList(ctx, f.List, token)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if group, err := e.text(f.Claim); err == nil {
			all = append(all, group)
		}
	}
	return all, nil
}

// askList fetches a list that the provider keeps at an address of its own. The error is an *Error.
func (ic *infoClient) askList(ctx context.Context, address string, token *oauth2.Token) ([]claims, error) {
	body, failure := ic.get(ctx, ic.lists, address, token)
	if failure != nil {
		return nil, failure
	}
	var list []claims
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, ic.newError(StageUserInfo, ClassMalformed,
			"not a JSON list of objects with distinct names")
	}
	return list, nil
}

// verifiedEmail is the e-mail address, if the provider states that it has verified it (OpenID Connect Core
// 1.0 §5.1): anybody can enter another one.
func (ic *infoClient) verifiedEmail(c claims, f netsettings.Fact) string {
	if f.Claim == "" || !ic.isVerified(c, f.Verified) {
		return ""
	}
	s, err := c.text(f.Claim)
	if err != nil || len(s) > maxEmailBytes {
		return ""
	}
	name, domain, ok := strings.Cut(s, "@")
	if !ok || name == "" || domain == "" || strings.Contains(domain, "@") ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return ""
	}
	return s
}

// instant reads Unix seconds or RFC 3339. Instants before 1990 or far ahead are mistakes, such as
// milliseconds taken for seconds.
func (c claims) instant(path string) (time.Time, error) {
	v, _ := c.find(path)
	var at time.Time
	if v.Kind() == '0' {
		var seconds int64
		if json.Unmarshal(v, &seconds) != nil {
			return time.Time{}, errNotReported
		}
		at = time.Unix(seconds, 0)
	} else {
		s, err := c.text(path)
		if err != nil {
			return time.Time{}, err
		}
		if at, err = time.Parse(time.RFC3339, s); err != nil {
			return time.Time{}, errNotReported
		}
	}
	if at.Year() < 1990 || at.Year() > 2200 {
		return time.Time{}, errNotReported
	}
	return at.UTC(), nil
}

// texts reads a text or whole number, or a list of them; other values are left out.
func (c claims) texts(path string) []string {
	if s, err := c.text(path); err == nil {
		return []string{s}
	}
	v, _ := c.find(path)
	var values []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &values) != nil {
		return nil
	}
	var all []string
	for _, value := range values {
		if s, err := (claims{"": value}).text(""); err == nil {
			all = append(all, s)
		}
	}
	return all
}

var errNotReported = errors.New("not reported")
