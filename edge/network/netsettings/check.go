package netsettings

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// checker refuses settings, which have their defaults. Its errors name the network, the setting and what is
// valid.
type checker struct{ Settings }

// validate checks settings with their defaults filled.
func (s checker) validate() error {
	return errors.Join(s.checkNames(), s.checkAddresses(), s.checkClient(), s.checkAsked(), s.checkRules(),
		s.checkPlatforms())
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

func (s checker) checkNames() error {
	var errs []error
	if !idForm.MatchString(s.ID) || len(s.ID) > maxIDLen {
		errs = append(errs, s.wrong("id",
			"1 to %d of a–z, 0–9 and hyphen, not starting with a hyphen, for instance my-network",
			maxIDLen))
	}
	if n := utf8.RuneCountInString(s.Name); n == 0 || n > maxNameRunes || !utf8.ValidString(s.Name) ||
		strings.TrimSpace(s.Name) != s.Name || strings.ContainsFunc(s.Name, unicode.IsControl) {
		errs = append(errs, s.wrong("name",
			"what users know it by, 1 to %d characters on one line, for instance Example Network",
			maxNameRunes))
	}
	if _, known := presets[s.Kind]; !known && s.Kind != KindOIDC && s.Kind != KindOAuth2 {
		errs = append(errs, s.wrong("kind", "oidc (OpenID Connect), oauth2, or one of %s",
			strings.Join(slices.Sorted(maps.Keys(presets)), ", ")))
	}
	return errors.Join(errs...)
}

func (s checker) checkAddresses() error {
	if s.Protocol() == ProtocolOpenID2 {
		return nil
	}
	oauth2 := s.Protocol() == KindOAuth2
	var errs []error
	for _, address := range []struct {
		setting, value string
		required       bool
	}{
		{"issuer", s.Issuer, !oauth2},
		{"authorization_endpoint", s.AuthorizationEndpoint, oauth2},
		{"token_endpoint", s.TokenEndpoint, oauth2},
		{"user_info_endpoint", s.UserInfoEndpoint, oauth2},
	} {
		if address.value == "" && address.required {
			errs = append(errs, s.wrong(address.setting, "required for kind %s: an https URL", s.Kind))
		} else if address.value != "" {
			if err := CheckURL(address.value); err != nil {
				errs = append(errs, s.wrong(address.setting, "%w", err))
			}
		}
	}
	if Plain(s.IdentitiesOf) != s.IdentitiesOf {
		errs = append(errs, s.wrong("identities_of",
			"the issuer that the network's identities were known under, printable ASCII, for instance "+
				"https://accounts.example.com"))
	}
	if strings.Contains(s.Issuer, "?") { // OpenID Connect Discovery 1.0 §3, RFC 8414 §2
		errs = append(errs, s.wrong("issuer", "an issuer has no query; leave out what follows ?"))
	}
	if s.Protocol() == KindOIDC && s.AuthorizationEndpoint+s.TokenEndpoint != "" {
		errs = append(errs, s.wrong("authorization_endpoint, token_endpoint",
			"leave them out: an oidc network's endpoints come from its issuer's metadata"))
	}
	return errors.Join(errs...)
}

func (s checker) checkClient() error {
	if s.Protocol() == ProtocolOpenID2 {
		if s.ClientID+s.ClientSecret+s.ClientSecretFile != "" {
			return s.wrong("client_id, client_secret", "leave them out: kind %s knows no clients", s.Kind)
		}
		return nil
	}
	var errs []error
	if s.ClientID == "" || Plain(s.ClientID) != s.ClientID {
		errs = append(errs, s.wrong("client_id",
			"the id that the provider gave to this service, printable ASCII"))
	}
	if (s.ClientSecret == "") == (s.ClientSecretFile == "") {
		errs = append(errs, s.wrong("client_secret", "set either client_secret or client_secret_file"))
	}
	if s.AuthStyle != "" && s.AuthStyle != AuthHeader && s.AuthStyle != AuthParams {
		errs = append(errs, s.wrong("auth_style", "header (HTTP Basic) or params (in the body)"))
	}
	return errors.Join(errs...)
}

var (
	scopeForm  = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`) // RFC 6749 §3.3
	promptForm = regexp.MustCompile(`^[a-z_]+( [a-z_]+)*$`)
)

func (s checker) checkAsked() error {
	var errs []error
	for _, scope := range s.Scopes {
		if !scopeForm.MatchString(scope) {
			errs = append(errs, s.wrong("scopes",
				"a list with one scope each, for instance [openid, profile]"))
			break
		}
	}
	if s.Protocol() == KindOIDC && !slices.Contains(s.Scopes, scopeOpenID) {
		errs = append(errs, s.wrong("scopes",
			"an oidc network needs openid among them, for instance [openid, profile]"))
	}
	for _, path := range []struct{ setting, value string }{
		{"subject_claim", s.SubjectClaim}, {"created_claim", s.CreatedClaim}, {"groups_claim", s.GroupsClaim},
	} {
		if strings.HasPrefix(path.value, "/") && !jsontext.Pointer(path.value).IsValid() ||
			strings.Contains(path.value, "..") {
			errs = append(errs, s.wrong(path.setting,
				"a name, a dotted path (data.0.id) or a JSON Pointer (/data/0/id)"))
		}
	}
	if s.Prompt != "" && !promptForm.MatchString(s.Prompt) {
		errs = append(errs, s.wrong("prompt", "words of a–z and underscore, for instance select_account"))
	}
	if s.Protocol() == KindOIDC && slices.Contains(strings.Fields(s.Prompt), "none") {
		errs = append(errs, s.wrong("prompt",
			"none lets nobody sign in; leave it out, or use login, consent or select_account"))
	}
	return errors.Join(errs...)
}

// checkPreset refuses settings that a preset decides; written are the settings without their defaults.
func (s checker) checkPreset(written Settings) error {
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

// checkPlatforms refuses platforms that no session can have, and a network that is of no use.
func (s checker) checkPlatforms() error {
	for _, p := range s.Platforms {
		if p == "" || strings.TrimSpace(p) != p {
			return s.wrong("platforms", "a list with one platform each, as integrators name them, for "+
				"instance [discord]; %s stands for all", AnyPlatform)
		}
	}
	if s.PlatformOnly && len(s.Platforms) == 0 {
		return s.wrong("platform_only", "it proves the accounts of no platform; name them, for instance "+
			"platforms: [discord]")
	}
	return nil
}

// checkRules refuses rules that could never accept anybody, or for which this network reports no facts.
func (s checker) checkRules() error {
	p := s.Plan()
	var errs []error
	for _, d := range s.EmailDomains {
		if !domainForm.MatchString(d) {
			errs = append(errs, s.wrong("email_domains",
				"a list with one domain each, for instance [example.com]"))
			break
		}
	}
	if len(s.EmailDomains) > 0 && !p.Email.Reported() {
		errs = append(errs, s.wrong("email_domains",
			"kind %s reports no verified e-mail address; leave it out", s.Kind))
	}
	if s.MinAccountAge > 0 && !p.Created.Reported() {
		right := "set created_claim to the claim with the account's creation time"
		if _, known := presets[s.Kind]; known {
			right = "leave it out"
		}
		errs = append(errs, s.wrong("min_account_age", "kind %s does not report how old an account is; %s",
			s.Kind, right))
	}
	if len(s.RequireGroups) > 0 && !p.Groups.Reported() {
		errs = append(errs, s.wrong("require_groups", "kind %s reports no groups; leave it out", s.Kind))
	}
	errs = append(errs, s.checkLists()...)
	return errors.Join(append(errs, s.checkOneIdentity()...)...)
}

func (s checker) checkLists() []error {
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
			if v == "" || len(v) > MaxSubjectBytes || strings.TrimSpace(v) != v ||
				strings.HasSuffix(list.setting, "_subjects") && !IsSubject(v) {
				errs = append(errs, s.wrong(list.setting,
					`a list with one entry each, 1 to %d bytes without white space around it and, in a subject, without control or other invisible characters, for instance ["1234", "5678"]`, MaxSubjectBytes))
				break
			}
		}
	}
	return errs
}

func (s checker) checkOneIdentity() []error {
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
