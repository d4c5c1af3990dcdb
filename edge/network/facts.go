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
)

// maxEmailBytes is the longest address that mail can be sent to (RFC 5321 §4.5.3.1.3).
const maxEmailBytes = 254

// tellsWanted reports whether an ID token holds all claims that the rules judge by, so that user info need
// not be asked.
func (n *Network) tellsWanted(id claims) bool {
	for _, f := range n.settings.wanted() {
		if f.claim != "" && f.list == "" && !id.has(f.claim) {
			return false
		}
	}
	return true
}

// addFacts adds what the provider reported about the identity beyond its subject. What a rule needs and the
// provider should have reported is an error where it is missing, and not a refusal: the fault is not the
// user's.
func (n *Network) addFacts(ctx context.Context, id *Identity, token *oauth2.Token, docs []claims) error {
	var err error
	if id.CreatedAt, err = n.createdAt(id.Subject, docs); err != nil && n.settings.MinAccountAge > 0 {
		return n.newError(StageUserInfo, ClassMalformed,
			"it does not tell when the account was made, which min_account_age needs")
	}
	if id.Email, err = n.email(ctx, token, docs); err != nil {
		return err
	}
	if len(n.settings.RequireGroups) == 0 {
		return nil
	}
	id.Groups, err = n.groups(ctx, token, docs)
	return err
}

// createdAt is when the account was made: zero where the network does not report it. The error says that it
// reported something else.
func (n *Network) createdAt(subject string, docs []claims) (time.Time, error) {
	f := n.plan.created
	if f.of != nil {
		return f.of(subject)
	}
	for _, doc := range docs {
		if f.claim != "" && doc.has(f.claim) {
			return doc.instant(f.claim)
		}
	}
	return time.Time{}, errNotTold
}

// email is the address that the provider says it has verified; empty where there is none.
func (n *Network) email(ctx context.Context, token *oauth2.Token, docs []claims) (string, error) {
	f := n.plan.email
	if f.list == "" {
		for _, doc := range docs {
			if address := doc.verifiedEmail(f); address != "" {
				return address, nil
			}
		}
		return "", nil
	}
	if !n.asked(f) {
		return "", nil
	}
	entries, err := n.askList(ctx, f.list, token)
	if err != nil {
		return "", err
	}
	return pickEmail(entries, f, n.settings.Rules), nil
}

// asked reports whether the fact's scope is asked for, for a rule or because the operator's scopes have it.
func (n *Network) asked(f fact) bool {
	return slices.Contains(n.settings.scopes(), f.scope)
}

// pickEmail returns the verified address of a list that the rules accept, otherwise the primary one.
func pickEmail(entries []claims, f fact, r Rules) string {
	best := ""
	for _, e := range entries {
		address := e.verifiedEmail(f)
		switch {
		case address == "":
		case r.AcceptsDomain(address):
			return address
		case best == "" || e.isTrue("primary"):
			best = address
		}
	}
	return best
}

// AcceptsDomain reports whether an address is of one of EmailDomains.
func (r Rules) AcceptsDomain(address string) bool {
	_, domain, _ := strings.Cut(address, "@")
	for _, d := range r.EmailDomains {
		if strings.EqualFold(d, domain) {
			return true
		}
	}
	return false
}

// groups are what the identity belongs to: none where the provider reports none.
func (n *Network) groups(ctx context.Context, token *oauth2.Token, docs []claims) ([]string, error) {
	f := n.plan.groups
	if f.list == "" {
		for _, doc := range docs {
			if doc.has(f.claim) {
				return doc.texts(f.claim), nil
			}
		}
		return nil, nil
	}
	entries, err := n.askList(ctx, f.list, token)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if group, err := e.text(f.claim); err == nil {
			all = append(all, group)
		}
	}
	return all, nil
}

// askList gets a list that the provider keeps at an address of its own. The error is a *Error.
func (n *Network) askList(ctx context.Context, address string, token *oauth2.Token) ([]claims, error) {
	body, failure := n.get(ctx, n.metadata, address, token)
	if failure != nil {
		return nil, failure
	}
	var list []claims
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, n.newError(StageUserInfo, ClassMalformed,
			"not a JSON list of objects with distinct names")
	}
	return list, nil
}

// verifiedEmail is the e-mail address, where the provider says that it has verified it (OpenID Connect Core
// 1.0 §5.1): anybody can enter another one.
func (c claims) verifiedEmail(f fact) string {
	if f.claim == "" || !c.isTrue(f.verified) {
		return ""
	}
	s, err := c.text(f.claim)
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
			return time.Time{}, errNotTold
		}
		at = time.Unix(seconds, 0)
	} else {
		s, err := c.text(path)
		if err != nil {
			return time.Time{}, err
		}
		if at, err = time.Parse(time.RFC3339, s); err != nil {
			return time.Time{}, errNotTold
		}
	}
	if at.Year() < 1990 || at.Year() > 2200 {
		return time.Time{}, errNotTold
	}
	return at.UTC(), nil
}

// texts reads a text or whole number, or a list of them; what is neither is left out.
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

var errNotTold = errors.New("not told")

// cutAround returns what stands between a prefix and a suffix.
func cutAround(s, prefix, suffix string) (string, bool) {
	s, head := strings.CutPrefix(s, prefix)
	s, tail := strings.CutSuffix(s, suffix)
	return s, head && tail
}
