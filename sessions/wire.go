package sessions

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"verifyd/natsconf"
	"verifyd/natsconf/seal"
)

// recordVersion is carried by every record and fact, so that a later build can read an older one's.
const recordVersion = 1

// factVersion is carried by claims, results, resends and retries. Those of builds before it was introduced carry none, and read the same.
const factVersion = 1

// sealUse is the use of the box that callback URLs are sealed in; their owner is the session id.
const sealUse = "callback-url"

// hashUse is the use of the keyed hash of identities and of those they stand for.
const hashUse = "identity"

// The subjects of a session's facts and events (natsconf has the table).
func completionSubject(id ID) string    { return "completion." + string(id) }
func claimSubject(id ID, n int) string  { return "claim." + string(id) + "." + strconv.Itoa(n) }
func resultSubject(id ID, n int) string { return "result." + string(id) + "." + strconv.Itoa(n) }
func resendSubject(id ID, n int) string { return "resend." + string(id) + "." + strconv.Itoa(n) }
func scheduleSubject(id ID) string      { return "schedule." + string(id) }
func retrySubject(id ID) string         { return "retry." + string(id) }
func eventSubject(event string, id ID) string {
	return "session." + event + "." + string(id)
}

// recordSubject is where a session's record stands: below its account, so that an account's sessions can be listed.
func recordSubject(account string, id ID) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, account+"."+string(id))
}

// anyRecordSubject matches the one record of a session whose account is not known: ids are unique over all accounts. The server
// looks it up once for each account.
func anyRecordSubject(id ID) string { return recordSubject("*", id) }

func redeemedSubject(attempt string) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, "redeemed."+attempt)
}

func holdSubject(hash string) string {
	return natsconf.BucketSubject(natsconf.BucketIdentities, hash)
}

// record is a Session as it is stored. The session id is in the subject.
type record struct {
	Version        int       `json:"v"`
	Account        string    `json:"account"`
	Key            string    `json:"key"`
	Test           bool      `json:"test,omitzero"`
	Policy         Policy    `json:"policy,omitempty"`
	Platform       string    `json:"platform"`
	PlatformUserID string    `json:"platform_user_id"`
	GuildID        string    `json:"guild_id,omitempty"`
	Callback       []byte    `json:"callback"` // the sealed callback URL: its query carries integrators' secrets
	CreatedAt      time.Time `json:"created_at"`
	ExpiresAt      time.Time `json:"expires_at"`
}

// completionRecord is a Completion as it is stored.
type completionRecord struct {
	record
	State       State     `json:"state"`
	Reason      Reason    `json:"reason,omitempty"`
	Rule        Rule      `json:"rule,omitempty"`
	Network     string    `json:"network,omitempty"`
	CompletedAt time.Time `json:"completed_at"`
}

func newRecord(s Session, box *seal.Box) record {
	return record{
		Version: recordVersion, Account: s.Account, Key: s.Key, Test: s.Test, Policy: s.Policy,
		Platform: s.Platform, PlatformUserID: s.PlatformUserID, GuildID: s.GuildID,
		Callback: box.Seal([]byte(s.CallbackURL), string(s.ID)), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt,
	}
}

func (r record) session(id ID, box *seal.Box) (Session, error) {
	callback, err := box.Open(r.Callback, string(id))
	if err != nil {
		return Session{}, fmt.Errorf("callback URL of session %s: %w: %w", id, ErrUnreadable, err)
	}
	s := r.sealedSession(id)
	s.CallbackURL = string(callback)
	return s, nil
}

// sealedSession gives the session without its callback URL.
func (r record) sealedSession(id ID) Session {
	return Session{
		ID: id, Account: r.Account, Key: r.Key, Test: r.Test, Policy: r.Policy,
		Platform: r.Platform, PlatformUserID: r.PlatformUserID, GuildID: r.GuildID, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
	}
}

func encodeSession(s Session, box *seal.Box) ([]byte, error) { return json.Marshal(newRecord(s, box)) }

func encodeCompletion(c Completion, box *seal.Box) ([]byte, error) {
	return json.Marshal(completionRecord{
		record: newRecord(c.Session, box),
		State:  c.State, Reason: c.Reason, Rule: c.Rule, Network: c.Network, CompletedAt: c.CompletedAt,
	})
}

func decodeSession(id ID, data []byte, box *seal.Box) (Session, error) {
	var r record
	if err := decodeOf(id, data, &r, &r.Version); err != nil {
		return Session{}, err
	}
	return r.session(id, box)
}

func decodeCompletion(id ID, data []byte, box *seal.Box) (Completion, error) {
	var r completionRecord
	if err := decodeOf(id, data, &r, &r.Version); err != nil {
		return Completion{}, err
	}
	s, err := r.session(id, box)
	if err != nil {
		return Completion{}, err
	}
	return Completion{Session: s, Outcome: Outcome{State: r.State, Reason: r.Reason, Rule: r.Rule, Network: r.Network}, CompletedAt: r.CompletedAt}, nil
}

// decodeOf is decode for what is stored of a session.
func decodeOf(id ID, data []byte, into any, version *int) error {
	if err := decode(data, into, version); err != nil {
		return fmt.Errorf("the record of session %s: %w", id, err)
	}
	return nil
}

// decode refuses a record of a newer build rather than misread it. Its errors are ErrNewer and ErrUnreadable.
func decode(data []byte, into any, version *int) error {
	if err := json.Unmarshal(data, into); err != nil {
		return undecodable(data, recordVersion, err)
	}
	if *version < 1 { // a server's answer is a JSON object too
		return fmt.Errorf("it has no version: %w", ErrUnreadable)
	}
	return natsconf.CheckVersion(*version, recordVersion)
}

// undecodable says why something does not have the shape that this build knows: a newer build may write another one (ErrNewer), and what
// tells no such version nobody has written (ErrUnreadable).
func undecodable(data []byte, version int, cause error) error {
	if newer := natsconf.CheckNewer(data, version); newer != nil {
		return newer
	}
	return fmt.Errorf("decode: %w: %w", ErrUnreadable, cause)
}
