// Package records is how sessions, their facts and their events are stored in JetStream: the records and
// their versions, what is sealed in them and under which keys, the subjects, and the one way in which a fact
// is read (Reader) and written (Writer). The packages that list, erase and close sessions are built on it;
// package store combines them, and is the one that others use.
package records

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/proof"
)

// Every record, fact, hint and event of this package is one JSON object that carries its version as "v". This
// file is the one codec of all of them. It is strict: an unknown member, a duplicate member, a name in
// another case and text that is not UTF-8 are errors, so that two builds never read the same bytes
// differently. A build that adds a member therefore raises the version of the kind; earlier builds refuse
// such a record with ErrNewer and leave it alone.
//
// A refused record does not count as absent. A claim that cannot be decoded fences its attempt like one that
// can (ErrUnreadable).

// versions are those of one kind of record that this build reads.
type versions struct{ Oldest, Newest int }

// The versions of each kind.
var (
	// Records and completions of sessions: from 2 on their personal part is sealed under a key of the
	// session's own. Those of version 1 hold it in clear text. A session that asks for more than proof.Link
	// has version 3, and others keep theirs: a build that knows no levels must not complete the former. One
	// with a reference or a locale has version 4, and one with names version 5: these are in the sealed part,
	// in which older builds know no such members.
	sessionVersions = versions{1, 5}
	// Claims, resends and retries. Those of builds before the version was introduced carry none, and read
	// the same.
	factVersions = versions{0, 1}
	// Results: from 2 on the receiver's answer is sealed.
	resultVersions = versions{0, 2}
	// Events: from 2 on what they hold about the receiver is sealed, from 3 on they count tries.
	eventVersions = versions{1, 3}
	// ReservationVersions are those of idempotency reservations: from 2 on the fingerprint is a keyed hash of
	// the request's. The request names the user, who could be found by trying if the hash had no key. Those
	// of version 1 hold the fingerprint itself.
	ReservationVersions = versions{1, 2}
	// RecordVersions are those of identity holds, sign-in leases, progresses, records of erasures and
	// pages of keys.
	RecordVersions = versions{1, 1}
)

// The versions of a session's record from which on its personal part is sealed, it has a level, a reference
// and a locale, and names.
const (
	sealedVersion    = 2
	levelVersion     = 3
	referenceVersion = 4
	namesVersion     = 5
)

// sealedEventVersion is the version of an event from which on what it holds about the receiver is sealed.
const sealedEventVersion = 2

// Durations are stored as whole nanoseconds.
var (
	decoding = json.JoinOptions(json.RejectUnknownMembers(true), jsonv1.FormatDurationAsNano(true))
	encoding = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsonv1.FormatDurationAsNano(true))
)

// EncodeRecord writes a record. Invalid UTF-8 is replaced: a text from outside must not keep a fact from
// being stored.
func EncodeRecord(r any) ([]byte, error) { return json.Marshal(r, encoding) }

// DecodeRecord reads a record into a struct whose version is at version. Its errors are ErrNewer for a record
// of a newer version, in any shape, and ErrUnreadable for one that no build has written.
func DecodeRecord(data []byte, into any, version *int, v versions) error {
	if err := json.Unmarshal(data, into, decoding); err != nil {
		if newer := natsconf.CheckNewer(data, v.Newest); newer != nil {
			return newer
		}
		return fmt.Errorf("decode: %w: %w", facts.ErrUnreadable, err)
	}
	if *version < v.Oldest { // a server's answer is a JSON object too
		return fmt.Errorf("version %d: %w", *version, facts.ErrUnreadable)
	}
	return natsconf.CheckVersion(*version, v.Newest)
}

// toInstant returns an instant as the contract writes it: UTC, whole milliseconds.
func toInstant(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// decodeSealed reads the sealed part of a record, which has the record's version.
func decodeSealed(plain []byte, into any) error { return json.Unmarshal(plain, into, decoding) }

// HoldRecord is an IdentityHold as it is stored. The identity is in the subject, as a hash.
type HoldRecord struct {
	Version int         `json:"v"`
	User    string      `json:"by"`
	Session sessions.ID `json:"session"` // the user's newest
	// Earlier are sessions of the same user that held the identity before and had not ended then; Confirmed
	// reports that one of that user's was verified. So a hold lapses with the last of its user's sessions,
	// not with the newest alone.
	Earlier   []sessions.ID `json:"earlier,omitempty"`
	Confirmed bool          `json:"sure,omitzero"`
}

// ReservationRecord is a reservation as it is stored.
type ReservationRecord struct {
	Version     int       `json:"v"`
	Fingerprint []byte    `json:"fingerprint,omitempty"`
	Token       []byte    `json:"token,omitempty"` // sealed: a holder of it may sign in
	At          time.Time `json:"at"`
	Until       time.Time `json:"until,omitzero"` // when another may take over, unless the session is there
	// Released reports that no session was created: the key is free again.
	Released bool `json:"released,omitzero"`
}

// progressRecord is a proof.Progress as it is stored.
type progressRecord struct {
	Version int `json:"v"`
	proof.Progress
}

// LeaseRecord is a SignInLease as it is stored.
type LeaseRecord struct {
	Version int    `json:"v"`
	Nonce   string `json:"nonce,omitempty"` // of earlier builds, whose loop it served; it is not read
	sessions.SignInLease
}
