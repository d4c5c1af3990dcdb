package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// sealUse is the use of the box that seals callback URLs of version 1; their owner is the session id.
const sealUse = "callback-url"

// personalUse and detailsUse precede the session id in the owner of a box sealed under a session's own key.
const (
	personalUse = "personal/"
	detailsUse  = "answer/"
)

// SessionRecord is a Session as it is stored. The session id is in the subject.
type SessionRecord struct {
	Version int             `json:"v"`
	Account string          `json:"account"`
	Key     string          `json:"key"`
	Test    bool            `json:"test,omitzero"`
	Policy  sessions.Policy `json:"policy,omitempty"`
	Level   proof.Level     `json:"level,omitempty"` // from version 3 on
	// Of version 1: the members that name the user are in clear text, and the callback URL, whose query
	// carries integrators' secrets, is sealed under the master key.
	Platform       string `json:"platform,omitempty"`
	PlatformUserID string `json:"platform_user_id,omitempty"`
	GuildID        string `json:"guild_id,omitempty"`
	Callback       []byte `json:"callback,omitempty"`
	// Of version 2: all of these are sealed (sessions.Request) under the session's own key, which is on that
	// page.
	Personal  []byte    `json:"personal,omitempty"`
	Page      string    `json:"page,omitempty"`
	Slot      int       `json:"slot,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// CompletionRecord is a Completion as it is stored.
type CompletionRecord struct {
	SessionRecord
	State       sessions.State  `json:"state"`
	Reason      sessions.Reason `json:"reason,omitempty"`
	Rule        failure.Rule    `json:"rule,omitempty"`
	Network     string          `json:"network,omitempty"`
	Reached     proof.Level     `json:"reached,omitempty"` // from version 3 on
	CompletedAt time.Time       `json:"completed_at"`
}

// Sealer seals a session's personal part.
type Sealer struct {
	box *secretbox.Box // of the master key, for a session that has no key of its own
	key secretbox.Key  // the session's own
}

func newRecord(s sessions.Session, with Sealer) (SessionRecord, error) {
	r := SessionRecord{
		Version: 1, Account: s.Account, Key: s.Key, Test: s.Test, Policy: s.Policy, CreatedAt: s.CreatedAt,
		ExpiresAt: s.ExpiresAt,
	}
	if s.SealedUnder == (sessions.KeyRef{}) {
		r.Platform, r.PlatformUserID, r.GuildID = s.Platform, s.PlatformUserID, s.GuildID
		r.Callback = with.box.Seal([]byte(s.CallbackURL), string(s.ID))
		return r, nil
	}
	r.Version, r.Page, r.Slot = sealedVersion, s.SealedUnder.Page, s.SealedUnder.Slot
	if s.Level.Or(proof.Link) != proof.Link {
		r.Version, r.Level = levelVersion, s.Level
	}
	switch {
	case s.DisplayName+s.GroupName != "":
		r.Version = namesVersion
	case s.Reference+s.Locale != "":
		r.Version = referenceVersion
	}
	if s.Lost {
		return r, nil
	}
	plain, err := EncodeRecord(s.Request)
	r.Personal = with.key.OwnBox().Seal(plain, personalUse+string(s.ID))
	return r, err
}

// keyRef returns where the session's own key is; the zero value: it has none.
func (r SessionRecord) keyRef() sessions.KeyRef {
	if r.Version < sealedVersion {
		return sessions.KeyRef{}
	}
	return sessions.KeyRef{Page: r.Page, Slot: r.Slot}
}

// session opens a record.
func (r SessionRecord) session(id sessions.ID, with Sealer) (sessions.Session, error) {
	s := r.SealedSession(id)
	if s.SealedUnder == (sessions.KeyRef{}) {
		callback, err := with.box.Open(r.Callback, string(id))
		if err != nil {
			return sessions.Session{}, fmt.Errorf("callback URL of session %s: %w: %w", id,
				facts.ErrUnreadable, err)
		}
		s.CallbackURL = string(callback)
		return s, nil
	}
	plain, err := with.key.OwnBox().Open(r.Personal, personalUse+string(id))
	if err != nil {
		return sessions.Session{}, fmt.Errorf("personal part of session %s: %w: %w", id, facts.ErrUnreadable,
			err)
	}
	p := sessions.Request{Account: s.Account, Key: s.Key, Test: s.Test, Policy: s.Policy, Level: s.Level}
	if err := decodeSealed(plain, &p); err != nil {
		return sessions.Session{}, fmt.Errorf("personal part of session %s: %w: %w", id, facts.ErrUnreadable,
			err)
	}
	s.Request = p
	return s, nil
}

// SealedSession returns the session without its sealed part.
func (r SessionRecord) SealedSession(id sessions.ID) sessions.Session {
	return sessions.Session{
		ID: id, Request: sessions.Request{
			Account: r.Account, Key: r.Key, Test: r.Test, Policy: r.Policy, Platform: r.Platform,
			PlatformUserID: r.PlatformUserID, GuildID: r.GuildID, Level: r.Level.Or(proof.Link),
		},
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, SealedUnder: r.keyRef(),
	}
}

func encodeSession(s sessions.Session, with Sealer) ([]byte, error) {
	r, err := newRecord(s, with)
	if err != nil {
		return nil, err
	}
	return EncodeRecord(r)
}

// EncodeCompletion returns a completion as it is stored.
func EncodeCompletion(c sessions.Completion, with Sealer) ([]byte, error) {
	r, err := newRecord(c.Session, with)
	if err != nil {
		return nil, err
	}
	stored := CompletionRecord{
		SessionRecord: r, State: c.State, Reason: c.Reason, Rule: c.Rule, Network: c.Network,
		CompletedAt: c.CompletedAt,
	}
	if r.Version >= levelVersion {
		stored.Reached = c.Reached
	}
	return EncodeRecord(stored)
}

// Opener opens the sealed parts of sessions, their facts and their events.
type Opener struct {
	box  *secretbox.Box // of callback URLs that have no key of their session's own
	keys *sessionKeys
}

// OpenSession reads a record. Its errors are ErrNewer, ErrUnreadable, ErrErased and, if the session's key is
// not in memory, natsconf.ErrUnavailable.
func (st *Opener) OpenSession(ctx context.Context, id sessions.ID, data []byte) (sessions.Session, error) {
	var r SessionRecord
	if err := DecodeOf(id, data, &r, &r.Version); err != nil {
		return sessions.Session{}, err
	}
	return st.OpenRecord(ctx, id, r)
}

// OpenCompletion reads a completion. Its errors are those of OpenSession.
func (st *Opener) OpenCompletion(ctx context.Context, id sessions.ID, data []byte) (sessions.Completion,
	error) {
	var r CompletionRecord
	if err := DecodeOf(id, data, &r, &r.Version); err != nil {
		return sessions.Completion{}, err
	}
	s, err := st.OpenRecord(ctx, id, r.SessionRecord)
	if err != nil {
		return sessions.Completion{}, err
	}
	return sessions.Completion{Session: s, Outcome: r.outcome(), CompletedAt: r.CompletedAt}, nil
}

func (r CompletionRecord) outcome() sessions.Outcome {
	o := sessions.Outcome{
		State: r.State, Reason: r.Reason, Rule: r.Rule, Network: r.Network, Reached: r.Reached,
	}
	return o.WithLevel()
}

// OpenRecord opens a record. If its key is lost, it returns the part that is not sealed.
func (st *Opener) OpenRecord(ctx context.Context, id sessions.ID, r SessionRecord) (sessions.Session, error) {
	with, err := st.SealerOf(ctx, r.keyRef())
	if errors.Is(err, errNoPage) {
		s := r.SealedSession(id)
		s.Lost = true
		return s, nil
	}
	if err != nil {
		return sessions.Session{}, fmt.Errorf("session %s: %w", id, err)
	}
	return r.session(id, with)
}

// SealerOf finds the sealer of a session's personal part.
func (st *Opener) SealerOf(ctx context.Context, ref sessions.KeyRef) (Sealer, error) {
	if ref == (sessions.KeyRef{}) {
		return Sealer{box: st.box}, nil
	}
	key, err := st.keys.key(ctx, ref)
	return Sealer{key: key}, err
}

// DestroyKey removes a session's key permanently. A repeat is harmless. Its errors are natsconf's, ErrNewer,
// and ErrUnreadable if the page of the key does not open: it holds others' keys.
func (st *Opener) DestroyKey(ctx context.Context, ref sessions.KeyRef) error {
	return st.keys.destroy(ctx, ref)
}

// DecodeOf decodes a stored message of a session: its record or its completion.
func DecodeOf(id sessions.ID, data []byte, into any, version *int) error {
	if err := DecodeRecord(data, into, version, sessionVersions); err != nil {
		return fmt.Errorf("the record of session %s: %w", id, err)
	}
	return nil
}

// decodeOutcomeOrRecord decodes a session's record or, from StreamCompletions, the same part of its outcome.
func decodeOutcomeOrRecord(id sessions.ID, stream string, data []byte) (*SessionRecord, error) {
	var c CompletionRecord
	into := any(&c.SessionRecord)
	if stream == topology.StreamCompletions {
		into = &c
	}
	err := DecodeOf(id, data, into, &c.Version)
	return &c.SessionRecord, err
}
