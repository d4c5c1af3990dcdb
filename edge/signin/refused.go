package signin

import (
	"net/http"

	"verifyd/sessions"
)

// refusedPages say to the user which rule refused, and what to do. Lists are distinguished for
// nobody: to be on one and not to be on the other read the same, so that nobody learns what others have
// entered about them.
var refusedPages = map[sessions.Rule]kind{
	sessions.RuleSubjectMatch: pageRefused,
	sessions.RuleEmailDomains: {"refused_email", http.StatusOK, toneBad},
	sessions.RuleAccountAge:   {"refused_age", http.StatusOK, toneBad},
	sessions.RuleGroups:       {"refused_groups", http.StatusOK, toneBad},
	sessions.RuleAllow:        {"refused_list", http.StatusOK, toneBad},
	sessions.RuleDeny:         {"refused_list", http.StatusOK, toneBad},
	sessions.RuleOneIdentity:  {"refused_held", http.StatusOK, toneBad},
}

// refusedPage is the page of a rule; records of builds that had one rule alone name none.
func refusedPage(r sessions.Rule) kind {
	if k, ok := refusedPages[r]; ok {
		return k
	}
	return pageRefused
}
