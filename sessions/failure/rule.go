package failure

// Rule names what refused an identity: the key of a network's rule in the networks file, or platform_account.
// Empty unless the reason is Refused; records of builds that had only one rule leave it out.
type Rule string

// The rules of identity networks.
const (
	NoRule           Rule = ""
	RuleSubjectMatch Rule = "require_subject_match"
	RuleEmailDomains Rule = "email_domains"
	RuleAccountAge   Rule = "min_account_age"
	RuleGroups       Rule = "require_groups"
	RuleAllow        Rule = "allow_subjects"
	RuleDeny         Rule = "deny_subjects"
	RuleOneIdentity  Rule = "one_identity_per"
	// RulePlatformAccount: the session requires that the platform account signs in, and another one did
	RulePlatformAccount Rule = "platform_account"
)
