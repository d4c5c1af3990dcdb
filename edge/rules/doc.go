// Package rules judges whether an identity that a network vouched for is accepted for a session, by the network's rules. It is pure:
// what it judges by is given, and the time is an argument.
//
// The rules, in the order in which they are judged; the first that refuses is the one that is told:
//
//	deny_subjects          the subject is on the list
//	allow_subjects         the subject is not on the list
//	require_subject_match  the subject is not the session's platform_user_id
//	email_domains          there is no verified e-mail address of one of the domains
//	min_account_age        the account at the network is younger
//	require_groups         the identity belongs to none of the groups
//	one_identity_per       the identity stands for another user already
//
// The last one takes a look into the store, and a write: Hold says what is to be held there, and package sessions holds it. It comes
// last, so that an identity that another rule refuses is never held.
//
// The law: a rule refuses what it cannot be satisfied with. A fact that the network tells of nobody is refused with the settings; one
// that it fails to tell of this user is trouble, and never gets here.
package rules
