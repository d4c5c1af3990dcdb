package notice

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/sessions/base32"
)

// Type names a kind of cause. Integrators build on the names: none is ever changed.
type Type string

// The types.
const (
	ReceiverFailing   Type = "receiver.failing"   // Data: receiver, class, sessions
	ReceiverRecovered Type = "receiver.recovered" // Data: receiver, failing_since
	// OutcomeWaiting: a callback ended so that a person has to decide whether it is sent again. Data:
	// session, receiver, verdict, class
	OutcomeWaiting Type = "outcome.waiting"
	QuotaReached   Type = "quota.reached"  // Data: percent, used, limit, resets_at
	KeyExpiring    Type = "key.expiring"   // Data: key, name, expires_at, rolled
	KeyExpired     Type = "key.expired"    // the same
	SecretRotated  Type = "secret.rotated" // Data: by, old_signs_until
	MemberJoined   Type = "member.joined"  // Data: name, role, by
	Test           Type = "test"           // a member asked for it, to see whether notices arrive
)

const (
	recordVersion = 1
	idPrefix      = "notice_"
	idChars       = 26 // 130 bits, as of an account's and a key's ids and more
)

// Notice is a notice to an account.
type Notice struct {
	// "notice_" and letters and digits: the same for one cause, whichever process sees it
	ID      string         `json:"-"`
	Account string         `json:"-"`
	Type    Type           `json:"type"`
	At      time.Time      `json:"at"`
	Detail  string         `json:"detail"` // one sentence for people
	Data    map[string]any `json:"data,omitempty"`

	Read bool `json:"-"` // by the person who asked (Store.Seen)

	sequence uint64 // its place in the stream
}

// New returns the notice of a cause. Two of one account, type and cause are the same notice.
func New(account string, t Type, cause string, at time.Time, detail string, data map[string]any) Notice {
	sum := sha256.Sum256([]byte(account + "\n" + string(t) + "\n" + cause))
	id := base32.Lower.EncodeToString(sum[:])[:idChars]
	return Notice{
		ID: idPrefix + id, Account: account, Type: t, At: at.UTC(), Detail: detail, Data: data,
	}
}

// record is a notice as it is stored.
type record struct {
	Version int `json:"v"`
	Notice
}

func (n Notice) encode() ([]byte, error) {
	data, err := json.Marshal(record{recordVersion, n})
	if err != nil {
		return nil, fmt.Errorf("encode notice: %w", err)
	}
	return data, nil
}

// decode reads the notice of a subject. Its errors are natsconf.ErrNewer, and that of what no build wrote.
func decode(subject string, data []byte) (Notice, error) {
	words := strings.Split(subject, ".")
	if len(words) != 3 || words[1] == "" || !strings.HasPrefix(words[2], idPrefix) ||
		subject != subjectOf(words[1], words[2]) {
		return Notice{}, fmt.Errorf("%q is no notice's subject", subject)
	}
	var r record
	if err := natsconf.DecodeRecord(data, &r, &r.Version, recordVersion); err != nil {
		return Notice{}, fmt.Errorf("notice %s: %w", words[2], err)
	}
	r.Account, r.ID = words[1], words[2]
	return r.Notice, nil
}

// body is the body of the POST. It has a type, which a callback's never has (Standard Webhooks, "Payload
// structure").
type body struct {
	Type      Type           `json:"type"`
	Timestamp time.Time      `json:"timestamp"`
	ID        string         `json:"id"`
	Account   string         `json:"account"`
	Detail    string         `json:"detail"`
	Data      map[string]any `json:"data"`
}

// Body returns the body of the notice's POST.
func (n Notice) Body() ([]byte, error) {
	data := n.Data
	if data == nil {
		data = map[string]any{}
	}
	return json.Marshal(body{n.Type, n.At.UTC(), n.ID, n.Account, n.Detail, data})
}
