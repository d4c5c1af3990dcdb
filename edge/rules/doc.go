// Package rules judges whether an identity that a network vouched for is accepted for a session, by the
// network's rules. It is pure: everything it judges by is an argument, the time too.
//
// The rules, in the order in which they are judged; the first that refuses is reported:
//
//	deny_subjects          the subject is on the list
//	allow_subjects         the subject is not on the list
//	require_subject_match  the subject is not the session's platform_user_id
//	email_domains          there is no verified e-mail address of one of the domains
//	min_account_age        the account at the network is younger
//	require_groups         the identity belongs to none of the groups
//	one_identity_per       the identity stands for another user already
//
// The last one needs the store: Hold returns what sessions/store is to hold, and so does Slots for an
// account's own limit of users, which is reported as the same rule. It comes last, so that an identity that
// another rule refuses is never held.
//
// The law: a rule refuses what it cannot be satisfied with. A rule on a fact that the network reports for no
// user is refused with the settings. If the network fails to report the fact for this user, that is a
// network.Error, and never gets here.
package rules
