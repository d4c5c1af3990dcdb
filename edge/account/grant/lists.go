package grant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Operators lists the grants of operators that are in force, by holder.
func (s *Store) Operators(ctx context.Context) ([]Grant, error) {
	grants, err := s.grants(ctx, operators.entry, operatorLinks.entry)
	if err != nil {
		return nil, fmt.Errorf("list operators: %w", err)
	}
	return grants, nil
}

// LoginLinks lists the grants of login links into an account that were not revoked, by link: until the last
// login that one may have led to ends. The error is ErrNoAccount for a text that is not an account's id.
func (s *Store) LoginLinks(ctx context.Context, id string) ([]Grant, error) {
	if !account.IsID(id) {
		return nil, account.ErrNoAccount
	}
	grants, err := s.grants(ctx, accountLinks.entry+id+".")
	if err != nil {
		return nil, fmt.Errorf("list login links: %w", err)
	}
	return grants, nil
}

// grants lists the grants below some entries that are in force, by holder.
func (s *Store) grants(ctx context.Context, entries ...string) ([]Grant, error) {
	grants, err := s.decisions(ctx, entries...)
	if err != nil {
		return nil, err
	}
	grants = slices.DeleteFunc(grants, func(g Grant) bool { return !g.holds(s.log.Instant()) })
	slices.SortFunc(grants, func(a, b Grant) int { return strings.Compare(a.Holder(), b.Holder()) })
	return grants, nil
}

// decisions lists the grants below some entries, in force or not. If a newer build has written some, it
// returns the others with natsconf.ErrNewer.
func (s *Store) decisions(ctx context.Context, entries ...string) ([]Grant, error) {
	var subjects []string
	for _, entry := range entries {
		subjects = append(subjects, topology.BucketSubject(topology.BucketOperations, entry+">"))
	}
	msgs, err := s.conn.Newest(ctx, topology.BucketStream(topology.BucketOperations), subjects...)
	if err != nil {
		return nil, err
	}
	var grants []Grant
	for _, m := range msgs {
		g, derr := decodeGrant(m.Data())
		if derr == nil {
			grants = append(grants, g)
			continue
		}
		err = errors.Join(err, s.log.LeaveOut(fmt.Errorf("%s: %w", m.Subject(), derr)))
	}
	return grants, err
}

// RepairLog writes the records of grants that are missing in the audit log. A repeat is harmless. One that
// cannot be written keeps no other one from it, unless the store is away.
func (s *Store) RepairLog(ctx context.Context) error {
	grants, err := s.decisions(ctx, operators.entry, operatorLinks.entry, tokenGrants.entry,
		accountLinks.entry)
	for _, g := range grants {
		if errors.Is(err, natsconf.ErrUnavailable) {
			break
		}
		if rerr := s.log.Repair(ctx, g.Last); rerr != nil {
			err = errors.Join(err, fmt.Errorf("record of %s: %w", g.Holder(), rerr))
		}
	}
	return err
}
