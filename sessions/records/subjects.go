package records

import (
	"strings"

	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// CompletionSubject is the subject of a session's completion (natsconf has the table of subjects).
func CompletionSubject(id sessions.ID) string { return "completion." + string(id) }

// ScheduleSubject is the subject of the schedule of a session's next try.
func ScheduleSubject(id sessions.ID) string { return "schedule." + string(id) }

// RetrySubject is the subject on which a session's next try comes due.
func RetrySubject(id sessions.ID) string { return "retry." + string(id) }

// EventSubject is the subject of an event of a session.
func EventSubject(event string, id sessions.ID) string {
	return "session." + event + "." + string(id)
}

// RecordSubject is the subject of a session's record: below its account, so that an account's sessions can be
// listed.
func RecordSubject(account string, id sessions.ID) string {
	return topology.BucketSubject(topology.BucketSessions, account+"."+string(id))
}

// AccountOf returns the account of the session whose record has a subject; empty for the subject of anything
// else in the bucket.
func AccountOf(subject string) string {
	key := strings.TrimPrefix(subject, topology.BucketSubject(topology.BucketSessions, ""))
	account, id, ok := strings.Cut(key, ".")
	if !ok || strings.Contains(id, ".") || account+"." == redeemedEntry {
		return ""
	}
	return account
}

// AnyRecordSubject matches the one record of a session whose account is not known: ids are unique over all
// accounts. The server looks it up once for each account.
func AnyRecordSubject(id sessions.ID) string { return RecordSubject("*", id) }

// progressSubject is the subject of the progress of a session's user. It has one word more than a session's
// record, so that no look-up of a record finds it.
func progressSubject(id sessions.ID) string {
	return topology.BucketSubject(topology.BucketSessions, "progress.proof."+string(id))
}

// redeemedEntry begins the key of an attempt that was spent: the only one of as many words as a record's.
const redeemedEntry = "redeemed."

func redeemedSubject(attempt string) string {
	return topology.BucketSubject(topology.BucketSessions, redeemedEntry+attempt)
}

// HoldSubject is the subject of the hold of an identity, by its keyed hash.
func HoldSubject(hash string) string {
	return topology.BucketSubject(topology.BucketIdentities, hash)
}

const erasedEntry = "erased."

// ErasedSubject is the subject of the record that a session's user was erased; for "*" and "", that of any
// session.
func ErasedSubject(id sessions.ID) string {
	return topology.BucketSubject(topology.BucketStore, erasedEntry+string(id))
}
