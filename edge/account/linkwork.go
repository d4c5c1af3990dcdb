package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"verifyd/natsconf"
)

// LinkWork is what was done by a login link into an account and stays when the link goes.
type LinkWork struct {
	Keys     []Key    // that it created or rolled others into, the newest first, as they stand now
	Members  []Member // whom its invites let in or who have their role by it, and who are members still
	Revealed bool     // whether a signing secret was looked at, or made, by it
}

// LinkWork reads from the audit log what a login link did: back to the record of the link's own creation.
// The link may have been taken back. Its errors are ErrNoAccount and natsconf's.
func (s *Store) LinkWork(ctx context.Context, account, link string) (LinkWork, error) {
	a, _, err := s.account(ctx, account)
	if err != nil {
		return LinkWork{}, err
	}
	traces, err := s.tracesOf(ctx, account, link)
	if err != nil {
		return LinkWork{}, err
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return LinkWork{}, err
	}
	for _, k := range keys {
		if k.last != nil { // it may not be in the log yet
			traces.take(*k.last, link)
		}
	}
	w := LinkWork{Revealed: traces.revealed}
	for _, k := range keys {
		if k.Account == account && traces.keys[k.ID] {
			w.Keys = append(w.Keys, k)
		}
	}
	slices.Reverse(w.Keys)
	for _, m := range a.Members {
		if traces.members[m.identity()] {
			w.Members = append(w.Members, m)
		}
	}
	return w, nil
}

func (a Actor) isLink(id string) bool { return a.Kind == ActorLink && a.ID == id }

// traces are the things, by id, that records name as a login link's work.
type traces struct {
	keys, invites, members map[string]bool
	revealed               bool
}

// tracesOf reads the records of an account that concern a login link. An invite is made before anybody
// accepts it, so what is read newest first is gone through from the oldest.
func (s *Store) tracesOf(ctx context.Context, account, link string) (traces, error) {
	t := traces{keys: map[string]bool{}, invites: map[string]bool{}, members: map[string]bool{}}
	var records []Record
	for cursor := ""; ; {
		page, err := s.Audit(ctx, account, cursor, MaxAudit)
		if err != nil {
			return traces{}, err
		}
		records = append(records, page.Records...)
		whole := slices.ContainsFunc(page.Records, func(r Record) bool {
			return r.What == LinkCreated && r.On == link
		})
		if cursor = page.Next; cursor == "" || whole {
			break
		}
	}
	for _, r := range slices.Backward(records) {
		t.take(r, link)
	}
	return t, nil
}

func (t *traces) take(r Record, link string) {
	if r.What == MemberJoined && t.invites[r.Detail["invite"]] {
		t.members[r.On] = true
	}
	if !r.Who.isLink(link) {
		return
	}
	switch r.What {
	case KeyCreated:
		t.keys[r.On] = true
	case KeyWasRolled:
		t.keys[r.Detail["into"]] = true
	case InviteCreated:
		t.invites[r.On] = true
	case MemberAdded, RoleChanged:
		t.members[r.On] = true
	case SecretRevealed, SecretRotated:
		t.revealed = true
	}
}

// withdrawInvitesOf takes the invites of a login link that was taken back out of the account's record.
// They let nobody in any more, whether that is written or not, so a record that a newer build has written
// is left to it.
func (s *Store) withdrawInvitesOf(ctx context.Context, by Actor, account, link string) error {
	_, err := s.change(ctx, by, account, ActionMembers, func(a *Account, _ time.Time) (deed, error) {
		n := dropInvites(a, identity{subject: link})
		if n == 0 {
			return deed{}, errUnchanged
		}
		return deed{what: InviteWithdrawn, on: link, detail: map[string]string{"invites_withdrawn": some(n)}},
			nil
	})
	if errors.Is(err, natsconf.ErrNewer) || errors.Is(err, ErrNoAccount) {
		return nil
	}
	return uncertain(err)
}
