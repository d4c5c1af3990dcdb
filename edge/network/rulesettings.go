package network

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Rules say which of the identities that the network vouches for are accepted. Package rules judges by them.
// The zero value accepts every identity.
type Rules struct {
	// RequireSubjectMatch refuses an identity whose subject is not the session's platform_user_id. It closes
	// the forwarding of links where the network is the platform itself.
	RequireSubjectMatch bool `yaml:"require_subject_match"`
	// EmailDomains are the domains of which one must be that of an e-mail address which the network has
	// verified. A subdomain is another domain.
	EmailDomains []string `yaml:"email_domains"`
	// MinAccountAge is how old the account at the network must be, as "30d" or "72h".
	MinAccountAge Span `yaml:"min_account_age"`
	// RequireGroups are the groups or organisations of which the identity must belong to one, as the network
	// spells them.
	RequireGroups []string `yaml:"require_groups"`
	// AllowSubjects, where there are any, are the only subjects accepted; DenySubjects are refused whatever
	// else holds.
	AllowSubjects []string `yaml:"allow_subjects"`
	DenySubjects  []string `yaml:"deny_subjects"`
	// OneIdentityPer lets an identity stand for one platform_user_id alone within "guild" (platform and
	// guild_id) or "platform".
	OneIdentityPer string `yaml:"one_identity_per"`
	// OneIdentityFor is how long that is remembered after the last verification; default 365d.
	OneIdentityFor Span `yaml:"one_identity_for"`
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

// checkRules refuses rules that could never accept anybody, or that this network gives nothing to judge by.
func (s Settings) checkRules() error {
	p := s.plan()
	var errs []error
	for _, d := range s.EmailDomains {
		if !domainForm.MatchString(d) {
			errs = append(errs, s.wrong("email_domains",
				"a list with one domain each, for instance [example.com]"))
			break
		}
	}
	if len(s.EmailDomains) > 0 && !p.email.told() {
		errs = append(errs, s.wrong("email_domains",
			"kind %s tells no e-mail address that it has verified; leave it out", s.Kind))
	}
	if s.MinAccountAge > 0 && !p.created.told() {
		right := "set created_claim to where it tells when the account was made"
		if _, known := presets[s.Kind]; known {
			right = "leave it out"
		}
		errs = append(errs, s.wrong("min_account_age", "kind %s does not tell how old an account is; %s",
			s.Kind, right))
	}
	if len(s.RequireGroups) > 0 && !p.groups.told() {
		errs = append(errs, s.wrong("require_groups", "kind %s tells no groups; leave it out", s.Kind))
	}
	errs = append(errs, s.checkLists()...)
	return errors.Join(append(errs, s.checkOneIdentity()...)...)
}

func (s Settings) checkLists() []error {
	var errs []error
	for _, list := range []struct {
		setting string
		values  []string
	}{
		{"email_domains", s.EmailDomains},
		{"require_groups", s.RequireGroups}, {"allow_subjects", s.AllowSubjects},
		{"deny_subjects", s.DenySubjects},
	} {
		if list.values != nil && len(list.values) == 0 {
			errs = append(errs, s.wrong(list.setting,
				"the list is empty; name at least one, or leave the key out"))
		}
		if len(list.values) > maxListed {
			errs = append(errs, s.wrong(list.setting, "at most %d entries", maxListed))
		}
		for _, v := range list.values {
			if v == "" || len(v) > maxSubjectBytes || strings.TrimSpace(v) != v {
				errs = append(errs, s.wrong(list.setting,
					`a list with one entry each, 1 to %d bytes without white space around it, for instance ["1234", "5678"]`, maxSubjectBytes))
				break
			}
		}
	}
	return errs
}

func (s Settings) checkOneIdentity() []error {
	var errs []error
	if s.OneIdentityPer != "" && s.OneIdentityPer != PerGuild && s.OneIdentityPer != PerPlatform {
		errs = append(errs, s.wrong("one_identity_per", "guild (platform and guild_id) or platform"))
	}
	if s.OneIdentityPer == "" && s.OneIdentityFor != 0 {
		errs = append(errs, s.wrong("one_identity_for", "set one_identity_per too: guild or platform"))
	}
	if s.OneIdentityPer != "" && s.OneIdentityFor < minOneIdentityFor {
		errs = append(errs, s.wrong("one_identity_for", "at least %s, for instance 365d", minOneIdentityFor))
	}
	return errs
}
