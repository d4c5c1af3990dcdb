package logins

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Allow decides who may create an account: everybody, some identities, or people with an e-mail address of
// some domains. The zero value allows nobody: only members, invited people and holders of a login link get
// in.
type Allow struct {
	open       bool
	identities map[string]bool // "network:subject"
	domains    map[string]bool // in lower case, without the @
}

var (
	allowIdentity = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}(~[a-z2-7]{10})?:.+$`)
	allowDomain   = regexp.MustCompile(`^@[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)
)

// ParseAllow reads the setting: "open", or a comma list of identities (network:subject) and e-mail domains
// (@example.org).
func ParseAllow(text string) (Allow, error) {
	if strings.TrimSpace(text) == "open" {
		return Allow{open: true}, nil
	}
	a := Allow{identities: map[string]bool{}, domains: map[string]bool{}}
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		switch domain := strings.ToLower(part); {
		case part == "":
		case allowDomain.MatchString(domain):
			a.domains[domain[1:]] = true
		case !strings.HasPrefix(part, "@") && allowIdentity.MatchString(part):
			a.identities[part] = true
		default:
			errs = append(errs, fmt.Errorf(
				"%q is neither an identity such as example:12345 nor a domain such as @example.org", part))
		}
	}
	return a, errors.Join(errs...)
}

// Allows reports whether somebody may make an account. An address counts only where the network verified it,
// which is the only case in which a login has one.
func (a Allow) Allows(l Login) bool {
	if l.Subject == "" {
		return false // a login link is for one account
	}
	_, domain, _ := strings.Cut(l.Email, "@")
	return a.open || a.identities[l.Network+":"+l.Subject] || domain != "" &&
		a.domains[strings.ToLower(domain)]
}
