package logins

import (
	"context"
	"errors"
	"slices"
	"strings"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// maxOwn is how many logins of one identity are looked at for a list: a person has a few in twelve hours, and
// each costs three reads.
const maxOwn = 100

// ID names a login in a list. Nobody can log in with it.
func (l Login) ID() string { return l.digest }

// Own returns the logins of the same identity that have not ended, the newest first; for a login by a link,
// only that login. Those that builds without the index have made are not among them, unless it is l itself.
func (s *Store) Own(ctx context.Context, l Login) ([]Login, error) {
	own := []Login{l}
	if l.Subject == "" {
		return own, nil
	}
	stream, prefix := topology.BucketStream(topology.BucketLogins),
		topology.BucketSubject(topology.BucketLogins, ownKey(l, ""))
	from := uint64(1)
	for range maxOwn {
		m, err := s.conn.Next(ctx, stream, prefix+"*", from)
		if errors.Is(err, natsconf.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, unavailable("read the logins", err)
		}
		from = m.Sequence + 1
		other, err := s.find(ctx, strings.TrimPrefix(m.Subject, prefix))
		switch {
		case errors.Is(err, ErrNotLoggedIn):
		case err != nil:
			return nil, err
		case other.digest != l.digest && other.isOf(l):
			own = append(own, other)
		}
	}
	slices.SortFunc(own, func(a, b Login) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return own, nil
}

// EndOwn ends a login of the same identity, by its ID; it may be l itself. The error is ErrNotLoggedIn if
// there is none.
func (s *Store) EndOwn(ctx context.Context, l Login, id string) error {
	if len(id) != len(l.digest) {
		return ErrNotLoggedIn
	}
	other, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if !other.isOf(l) {
		return ErrNotLoggedIn
	}
	return s.End(ctx, other)
}

// isOf reports whether both logins are one person's: the same identity, or the same login link.
func (l Login) isOf(o Login) bool {
	return l.Network == o.Network && l.Subject == o.Subject && l.LinkID == o.LinkID
}
