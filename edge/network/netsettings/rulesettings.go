package netsettings

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Rules define which of the identities that the network vouches for are accepted. Package rules judges by
// them. The zero value accepts every identity.
type Rules struct {
	// RequireSubjectMatch refuses an identity whose subject is not the session's platform_user_id. It
	// prevents the forwarding of links if the network is the platform itself.
	RequireSubjectMatch bool `yaml:"require_subject_match"`
	// EmailDomains are the accepted domains: the identity must have an e-mail address in one of them that the
	// network has verified. A subdomain is another domain.
	EmailDomains []string `yaml:"email_domains"`
	// MinAccountAge is how old the account at the network must be, as "30d" or "72h".
	MinAccountAge Span `yaml:"min_account_age"`
	// RequireGroups are groups or organisations, as the network spells them: the identity must belong to one
	// of them.
	RequireGroups []string `yaml:"require_groups"`
	// AllowSubjects, if there are any, are the only subjects accepted; DenySubjects are refused whatever else
	// holds.
	AllowSubjects []string `yaml:"allow_subjects"`
	DenySubjects  []string `yaml:"deny_subjects"`
	// OneIdentityPer lets an identity stand for only one platform_user_id within "guild" (platform and
	// guild_id) or "platform".
	OneIdentityPer string `yaml:"one_identity_per"`
	// OneIdentityFor is how long that is remembered after the last verification; default 365d.
	OneIdentityFor Span `yaml:"one_identity_for"`
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

// The scopes of OneIdentityPer.
const (
	PerGuild    = "guild"
	PerPlatform = "platform"
)

const (
	defaultOneIdentityFor = Span(365 * 24 * time.Hour)
	minOneIdentityFor     = Span(time.Hour)
	maxSpan               = Span(100 * 365 * 24 * time.Hour)
	maxListed             = 10_000 // entries of a list in the file; more belong into a group of the network
)

// MaxSubjectBytes is the bound of platform_user_id too, which a subject may have to equal.
const MaxSubjectBytes = 1024

// IsSubject reports whether a text can be who somebody is at a network. Characters that are not seen make two
// people look like one, wherever a person compares subjects.
func IsSubject(text string) bool {
	return text != "" && len(text) <= MaxSubjectBytes && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
		})
}

// Span is a duration that YAML writes in days, hours, minutes or seconds: 30d, 72h, 90m, 45s.
type Span time.Duration

var spanForm = regexp.MustCompile(`^([1-9][0-9]{0,8})([dhms])$`)

// UnmarshalYAML reads a span.
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	m := spanForm.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || m == nil {
		return errors.New("not a span of time")
	}
	count, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return err
	}
	unit := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute,
		"s": time.Second}[m[2]]
	if count > int64(time.Duration(maxSpan)/unit) {
		return errors.New("longer than a hundred years")
	}
	*s = Span(time.Duration(count) * unit)
	return nil
}

// String writes a span in its largest whole unit.
func (s Span) String() string {
	switch d := time.Duration(s); {
	case d == 0:
		return "0"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%ds", d/time.Second)
	}
}

var domainForm = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9-]{2,63}$`)
