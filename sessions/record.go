package sessions

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"verifyd/natsconf"
)

// Every record, fact, hint and event of this package is one JSON object that carries its version as "v".
// This file is the one codec of all of them. It is strict: a member that is unknown, a member that is there
// twice, a name in another case and text that is not UTF-8 are errors, so that two builds never read the
// same bytes differently. A build that adds a member therefore raises the version of the kind; builds from
// before refuse such a record with ErrNewer and leave it alone.
//
// Nothing that is refused counts as absent. A claim that cannot be decoded fences its attempt as one that
// can (ErrUnreadable).

// versions are those of one kind of record that this build reads.
type versions struct{ oldest, newest int }

// The versions of each kind.
var (
	// Records and completions of sessions: from 2 on their personal part is sealed under a key of the
	// session's own. Those of version 1 hold it in clear text.
	sessionVersions = versions{1, 2}
	// Claims, resends and retries. Those of builds before the version was introduced carry none, and read
	// the same.
	factVersions = versions{0, 1}
	// Results: from 2 on what the receiver said is sealed.
	resultVersions = versions{0, 2}
	// Events: from 2 on what they say of the receiver is sealed.
	eventVersions = versions{1, 2}
	// Idempotency reservations: from 2 on the fingerprint is a keyed hash of the request's. The request
	// names the user, and whom a hash without a key is of can be found out by trying. Those of version 1
	// hold the fingerprint itself.
	reservationVersions = versions{1, 2}
	// Identity bindings, sign-in leases, notes of erasures and pages of keys.
	recordVersions = versions{1, 1}
)

// Durations are stored as whole nanoseconds.
var (
	decoding = json.JoinOptions(json.RejectUnknownMembers(true), jsonv1.FormatDurationAsNano(true))
	encoding = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsonv1.FormatDurationAsNano(true))
)

// encodeRecord writes a record. Invalid UTF-8 is replaced: a text of others must not keep a fact from being
// stored.
func encodeRecord(r any) ([]byte, error) { return json.Marshal(r, encoding) }

// decodeRecord reads a record into a struct whose version is at version. Its errors are ErrNewer for what
// has a newer version, in any shape, and ErrUnreadable for what no build has written.
func decodeRecord(data []byte, into any, version *int, v versions) error {
	if err := json.Unmarshal(data, into, decoding); err != nil {
		if newer := natsconf.CheckNewer(data, v.newest); newer != nil {
			return newer
		}
		return fmt.Errorf("decode: %w: %w", ErrUnreadable, err)
	}
	if *version < v.oldest { // a server's answer is a JSON object too
		return fmt.Errorf("version %d: %w", *version, ErrUnreadable)
	}
	return natsconf.CheckVersion(*version, v.newest)
}

// decodeSealed reads what was sealed within a record, whose version is its own too.
func decodeSealed(plain []byte, into any) error { return json.Unmarshal(plain, into, decoding) }
