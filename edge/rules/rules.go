package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/store"
)

// Judge returns the rule that refuses the identity for the session; ok if none does.
func Judge(r netsettings.Rules, who network.Identity, s sessions.Session,
	now time.Time) (refusal failure.Rule,
	ok bool) {
	switch {
	case slices.Contains(r.DenySubjects, who.Subject):
		return failure.RuleDeny, false
	case len(r.AllowSubjects) > 0 && !slices.Contains(r.AllowSubjects, who.Subject):
		return failure.RuleAllow, false
	case r.RequireSubjectMatch && who.Subject != s.PlatformUserID:
		return failure.RuleSubjectMatch, false
	case len(r.EmailDomains) > 0 && !r.AcceptsDomain(who.Email):
		return failure.RuleEmailDomains, false
	case r.MinAccountAge > 0 && !oldEnough(who.CreatedAt, time.Duration(r.MinAccountAge), now):
		return failure.RuleAccountAge, false
	case len(r.RequireGroups) > 0 && !anyOf(who.Groups, r.RequireGroups):
		return failure.RuleGroups, false
	}
	return failure.NoRule, true
}

// oldEnough reports whether something made at that instant has the age. An unknown instant has none.
func oldEnough(made time.Time, age time.Duration, now time.Time) bool {
	return !made.IsZero() && !now.Before(made.Add(age))
}

// anyOf reports whether one of the values is among the wanted, spelled exactly so.
func anyOf(values, wanted []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(wanted, v) })
}

// Hold returns what one_identity_per holds for a session: that the identity stands for its user. ok if the
// network has the rule.
//
// namespace is the network's; the same subject of another provider is another identity.
//
// Test sessions hold apart from live ones, so that a trial never keeps anybody out.
func Hold(r netsettings.Rules, namespace string, who network.Identity,
	s sessions.Session) (h store.IdentityHold, ok bool) {
	scope := platformScope(s)
	switch r.OneIdentityPer {
	case netsettings.PerGuild:
		scope = append(scope, s.GuildID)
	case netsettings.PerPlatform:
	default:
		return store.IdentityHold{}, false
	}
	return store.IdentityHold{
		Identity: join(append([]string{r.OneIdentityPer, namespace, who.Subject}, scope...)...),
		User:     holder(s.PlatformUserID, scope),
		Session:  s.ID,
		For:      time.Duration(r.OneIdentityFor),
	}, true
}

// Slots returns what holds an identity for at most so many users of an account, whatever their platform: each
// slot lets it stand for one. It is remembered for as long as the network's one_identity_for says, or a year.
func Slots(limit int, r netsettings.Rules, namespace string, who network.Identity,
	s sessions.Session) []store.IdentityHold {
	slots := make([]store.IdentityHold, limit)
	for i := range slots {
		slots[i] = store.IdentityHold{
			Identity: join("account", namespace, who.Subject, s.Account, strconv.FormatBool(s.Test),
				strconv.Itoa(i)),
			User: holder(s.PlatformUserID, platformScope(s)), Session: s.ID,
			For: cmp.Or(time.Duration(r.OneIdentityFor), slotsFor),
		}
	}
	return slots
}

// slotsFor is how long an identity's users are remembered if the network does not set it.
const slotsFor = 365 * 24 * time.Hour

// Holders returns the names under which identities may stand for a session's user: on its platform, and in
// its guild.
func Holders(s sessions.Session) (platform, guild string) {
	scope := platformScope(s)
	return holder(s.PlatformUserID, scope), holder(s.PlatformUserID, append(scope, s.GuildID))
}

func platformScope(s sessions.Session) []string {
	return []string{s.Account, strconv.FormatBool(s.Test), s.Platform}
}

func holder(user string, scope []string) string { return join(append([]string{user}, scope...)...) }

// join makes one text from several, each preceded by its length, so that no two lists make the same text.
func join(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}
