package erasure

import (
	"context"
	"errors"
	"fmt"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// matches reports whether a session is the person's.
func (p Person) matches(s sessions.Session) bool {
	return s.Account == p.Account && s.PlatformUserID == p.PlatformUserID &&
		(p.Platform == "" || p.Platform == s.Platform) && (p.GuildID == "" || p.GuildID == s.GuildID)
}

// sessionsOf finds a person's sessions. A record that cannot be read belongs to nobody. One of a newer build
// ends the search: it may be theirs, and that build has to erase it.
func (st *Eraser) sessionsOf(ctx context.Context, p Person) (found []sessions.Session, err error) {
	recorded := map[sessions.ID]sessions.Session{}
	stored := topology.BucketStream(topology.BucketSessions)
	err = st.eachOf(ctx, p, stored, records.RecordSubject(p.Account, "*"),
		func(id sessions.ID, s *sessions.Session, err error) error {
			switch {
			case err != nil:
				return err
			case s == nil:
				// a server that is behind its leader delivers the deleted message, and then the deletion
				delete(recorded, id)
			default:
				recorded[id] = *s
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	for _, s := range recorded {
		found = append(found, s)
	}
	// Those whose record was deleted meanwhile by another erasure are among these.
	erased, err := st.Erased(ctx)
	if err != nil {
		return nil, err
	}
	err = st.eachOf(ctx, p, topology.StreamCompletions, records.CompletionSubject("*"),
		func(id sessions.ID, s *sessions.Session, err error) error {
			if err != nil {
				return st.unlessRecorded(ctx, id, err)
			}
			if _, ok := recorded[id]; !ok && !erased[id] && s != nil {
				found = append(found, *s)
			}
			return nil
		})
	return found, err
}

// unlessRecorded returns the error of a newer build's outcome, unless its session has a record, which has
// been examined.
func (st *Eraser) unlessRecorded(ctx context.Context, id sessions.ID, err error) error {
	if _, rerr := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions),
		records.AnyRecordSubject(id)); !errors.Is(rerr, natsconf.ErrNotFound) {
		return rerr
	}
	return err
}

// eachOf reads the messages on the subjects that match, records, or outcomes, which hold the same, and
// returns a person's sessions. One of a newer build is passed as an error, and a deleted one as nil.
func (st *Eraser) eachOf(ctx context.Context, p Person, stream, subject string,
	do func(sessions.ID, *sessions.Session, error) error) error {
	return st.EachRecord(ctx, stream, subject, func(id sessions.ID, r *records.SessionRecord,
		err error) error {
		s, mine, err := st.sessionIfOf(ctx, p, id, r, err)
		if mine || err != nil {
			err = do(id, s, err)
		}
		if err != nil {
			return fmt.Errorf("nothing was erased: %w", err)
		}
		return nil
	})
}

// sessionIfOf reports whether a record, or an outcome, is of a person; nil: it was deleted.
func (st *Eraser) sessionIfOf(ctx context.Context, p Person, id sessions.ID, r *records.SessionRecord,
	err error) (s *sessions.Session,
	mine bool, _ error) {
	switch {
	case err != nil:
		return nil, false, err
	case r == nil:
		return nil, true, nil
	case r.Account != p.Account:
		return nil, false, nil // no need to open it
	}
	opened := r.SealedSession(id)
	if opened.SealedUnder != (sessions.KeyRef{}) {
		opened, err = st.OpenRecord(ctx, id, *r)
	}
	if errors.Is(err, facts.ErrUnreadable) || errors.Is(err, records.ErrErased) || opened.Lost {
		return nil, false, nil
	}
	return &opened, err == nil && p.matches(opened), err
}
