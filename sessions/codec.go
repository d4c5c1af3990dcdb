package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
)

// sealUse is the use of the box that callback URLs of version 1 are sealed in; their owner is the session
// id.
const sealUse = "callback-url"

// personalUse and detailsUse precede the session id in the owner of what is sealed under a session's own
// key.
const (
	personalUse = "personal/"
	detailsUse  = "answer/"
)

// identityHashUse is the use of the keyed hash of identities and of those they stand for.
const identityHashUse = "identity"

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

// recordSubject is where a session's record stands: below its account, so that an account's sessions can be
// listed.
func recordSubject(account string, id ID) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, account+"."+string(id))
}

// anyRecordSubject matches the one record of a session whose account is not known: ids are unique over all
// accounts. The server looks it up once for each account.
func anyRecordSubject(id ID) string { return recordSubject("*", id) }

func redeemedSubject(attempt string) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, "redeemed."+attempt)
}

func bindingSubject(hash string) string {
	return natsconf.BucketSubject(natsconf.BucketIdentities, hash)
}

// record is a Session as it is stored. The session id is in the subject.
type record struct {
	Version int    `json:"v"`
	Account string `json:"account"`
	Key     string `json:"key"`
	Test    bool   `json:"test,omitzero"`
	Policy  Policy `json:"policy,omitempty"`
	// Of version 1: what names the user is in clear text, and the callback URL, whose query carries
	// integrators' secrets, is sealed under the master key.
	Platform       string `json:"platform,omitempty"`
	PlatformUserID string `json:"platform_user_id,omitempty"`
	GuildID        string `json:"guild_id,omitempty"`
	Callback       []byte `json:"callback,omitempty"`
	// Of version 2: all of these are sealed (personal) under the session's own key, which is on that page.
	Personal  []byte    `json:"personal,omitempty"`
	Page      string    `json:"page,omitempty"`
	Slot      int       `json:"slot,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// personal is what is sealed of a session.
type personal struct {
	Platform       string `json:"p"`
	PlatformUserID string `json:"u"`
	GuildID        string `json:"g,omitempty"`
	CallbackURL    string `json:"c"`
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

// sealer is what a session's personal part is sealed with.
type sealer struct {
	box *secretbox.Box // of the master key, for a session that has no key of its own
	key secretbox.Key  // the session's own
}

func newRecord(s Session, with sealer) (record, error) {
	r := record{
		Version: 1, Account: s.Account, Key: s.Key, Test: s.Test, Policy: s.Policy, CreatedAt: s.CreatedAt,
		ExpiresAt: s.ExpiresAt,
	}
	if s.key == (keyRef{}) {
		r.Platform, r.PlatformUserID, r.GuildID = s.Platform, s.PlatformUserID, s.GuildID
		r.Callback = with.box.Seal([]byte(s.CallbackURL), string(s.ID))
		return r, nil
	}
	r.Version, r.Page, r.Slot = sessionVersions.newest, s.key.page, s.key.slot
	if s.Lost {
		return r, nil
	}
	plain, err := encodeRecord(personal{s.Platform, s.PlatformUserID, s.GuildID, s.CallbackURL})
	r.Personal = with.key.OwnBox().Seal(plain, personalUse+string(s.ID))
	return r, err
}

// keyRef returns where the session's own key is; the zero value: it has none.
func (r record) keyRef() keyRef {
	if r.Version < sessionVersions.newest {
		return keyRef{}
	}
	return keyRef{r.Page, r.Slot}
}

// session opens a record.
func (r record) session(id ID, with sealer) (Session, error) {
	s := r.sealedSession(id)
	if s.key == (keyRef{}) {
		callback, err := with.box.Open(r.Callback, string(id))
		if err != nil {
			return Session{}, fmt.Errorf("callback URL of session %s: %w: %w", id, ErrUnreadable, err)
		}
		s.CallbackURL = string(callback)
		return s, nil
	}
	plain, err := with.key.OwnBox().Open(r.Personal, personalUse+string(id))
	if err != nil {
		return Session{}, fmt.Errorf("personal part of session %s: %w: %w", id, ErrUnreadable, err)
	}
	var p personal
	if err := decodeSealed(plain, &p); err != nil {
		return Session{}, fmt.Errorf("personal part of session %s: %w: %w", id, ErrUnreadable, err)
	}
	s.Platform, s.PlatformUserID, s.GuildID, s.CallbackURL = p.Platform, p.PlatformUserID, p.GuildID,
		p.CallbackURL
	return s, nil
}

// sealedSession returns the session without what is sealed of it.
func (r record) sealedSession(id ID) Session {
	return Session{
		ID: id, Account: r.Account, Key: r.Key, Test: r.Test, Policy: r.Policy, key: r.keyRef(),
		Platform: r.Platform, PlatformUserID: r.PlatformUserID, GuildID: r.GuildID, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt,
	}
}

func encodeSession(s Session, with sealer) ([]byte, error) {
	r, err := newRecord(s, with)
	if err != nil {
		return nil, err
	}
	return encodeRecord(r)
}

func encodeCompletion(c Completion, with sealer) ([]byte, error) {
	r, err := newRecord(c.Session, with)
	if err != nil {
		return nil, err
	}
	return encodeRecord(completionRecord{
		record: r, State: c.State, Reason: c.Reason, Rule: c.Rule, Network: c.Network,
		CompletedAt: c.CompletedAt,
	})
}

// decodeSession reads a record. Its errors are ErrNewer, ErrUnreadable, errErased and, where the session's
// key is not in memory, natsconf.ErrUnavailable.
func (st *Store) decodeSession(ctx context.Context, id ID, data []byte) (Session, error) {
	var r record
	if err := decodeOf(id, data, &r, &r.Version); err != nil {
		return Session{}, err
	}
	return st.openRecord(ctx, id, r)
}

// decodeCompletion reads a completion. Its errors are those of decodeSession.
func (st *Store) decodeCompletion(ctx context.Context, id ID, data []byte) (Completion, error) {
	var r completionRecord
	if err := decodeOf(id, data, &r, &r.Version); err != nil {
		return Completion{}, err
	}
	s, err := st.openRecord(ctx, id, r.record)
	if err != nil {
		return Completion{}, err
	}
	return Completion{
		Session: s, Outcome: Outcome{State: r.State, Reason: r.Reason, Rule: r.Rule, Network: r.Network},
		CompletedAt: r.CompletedAt,
	}, nil
}

// openRecord opens a record. Of one whose key is lost it returns what is not sealed.
func (st *Store) openRecord(ctx context.Context, id ID, r record) (Session, error) {
	with, err := st.sealer(ctx, r.keyRef())
	if errors.Is(err, errNoPage) {
		s := r.sealedSession(id)
		s.Lost = true
		return s, nil
	}
	if err != nil {
		return Session{}, fmt.Errorf("session %s: %w", id, err)
	}
	return r.session(id, with)
}

// sealer finds what a session's personal part is sealed with.
func (st *Store) sealer(ctx context.Context, ref keyRef) (sealer, error) {
	if ref == (keyRef{}) {
		return sealer{box: st.box}, nil
	}
	key, err := st.keys.key(ctx, ref)
	return sealer{key: key}, err
}

// decodeOf decodes what is stored of a session: its record or its completion.
func decodeOf(id ID, data []byte, into any, version *int) error {
	if err := decodeRecord(data, into, version, sessionVersions); err != nil {
		return fmt.Errorf("the record of session %s: %w", id, err)
	}
	return nil
}
