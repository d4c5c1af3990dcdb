package accountstore

import (
	"context"
	"slices"

	"verifyd/edge/account"
	"verifyd/edge/account/audit"
)

// LinkWork is what was done through a login link into an account and stays when the link ends.
type LinkWork struct {
	Keys     []account.Key    // that it created or rolled others into, the newest first, as they are now
	Members  []account.Member // let in by its invites, or with a role from it, and still members
	Revealed bool             // whether a signing secret was viewed, or made, through it
}

// LinkWork reads from the audit log what a login link did: back to the record of the link's own creation. The
// link may have been revoked. Its errors are ErrNoAccount and natsconf's.
func (s *Store) LinkWork(ctx context.Context, id, link string) (LinkWork, error) {
	a, _, err := s.account(ctx, id)
	if err != nil {
		return LinkWork{}, err
	}
	traces, err := s.tracesOf(ctx, id, link)
	if err != nil {
		return LinkWork{}, err
	}
	keys, err := s.listKeys(ctx)
	if err != nil {
		return LinkWork{}, err
	}
	for _, k := range keys {
		if k.Last != nil { // it may not be in the log yet
			traces.take(*k.Last, link)
		}
	}
	w := LinkWork{Revealed: traces.revealed}
	for _, k := range keys {
		if k.Account == id && traces.keys[k.ID] {
			w.Keys = append(w.Keys, k.Key)
		}
	}
	slices.Reverse(w.Keys)
	for _, m := range a.Members {
		if traces.members[m.Identity().String()] {
			w.Members = append(w.Members, m)
		}
	}
	return w, nil
}

// traces are the things, by id, that records name as a login link's work.
type traces struct {
	keys, invites, members map[string]bool
	revealed               bool
}

// tracesOf reads the records of an account that concern a login link. An invite is made before anybody
// accepts it, so the records, which are read newest first, are processed from the oldest.
func (s *Store) tracesOf(ctx context.Context, id, link string) (traces, error) {
	t := traces{keys: map[string]bool{}, invites: map[string]bool{}, members: map[string]bool{}}
	var records []audit.Record
	for cursor := ""; ; {
		page, err := s.Audit(ctx, id, cursor, 0)
		if err != nil {
			return traces{}, err
		}
		records = append(records, page.Records...)
		whole := slices.ContainsFunc(page.Records, func(r audit.Record) bool {
			return r.What == audit.LinkCreated && r.On == link
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

func (t *traces) take(r audit.Record, link string) {
	if r.What == audit.MemberJoined && t.invites[r.Detail["invite"]] {
		t.members[r.On] = true
	}
	if !r.Who.IsLink(link) {
		return
	}
	switch r.What {
	case audit.KeyCreated:
		t.keys[r.On] = true
	case audit.KeyWasRolled:
		t.keys[r.Detail["into"]] = true
	case audit.InviteCreated:
		t.invites[r.On] = true
	case audit.MemberAdded, audit.RoleChanged:
		t.members[r.On] = true
	case audit.SecretRevealed, audit.SecretRotated:
		t.revealed = true
	}
}
