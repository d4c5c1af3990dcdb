package grant

import (
	"context"

	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
)

// Log is where the grant's records are.
func (g Grant) Log() string { return g.log() }

// Granted reports whether a grant is in force.
func (s *Store) Granted(ctx context.Context, to Grant) (bool, error) { return s.granted(ctx, to) }

// EndWithoutRecord ends a grant as Store.revoke does, up to the moment at which its record would be written.
func (s *Store) EndWithoutRecord(ctx context.Context, of Grant) error {
	g, revision, err := s.grant(ctx, of)
	if err != nil {
		return err
	}
	g.Ended = s.log.Instant()
	if g.Last, err = s.log.Draft(ctx, audit.Record{
		Account: g.log(), Who: access.Operator("dead"), What: audit.LinkRevoked, On: g.Holder(),
	}); err != nil {
		return err
	}
	return s.putGrant(ctx, g, revision)
}
