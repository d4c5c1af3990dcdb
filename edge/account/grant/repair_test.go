package grant_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/grant"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// A process that dies between the end of a login link's grant and its record leaves the record in the grant,
// which is not in force meanwhile. The record is written when the next revocation finds nothing to revoke,
// when somebody is made an operator again, and at the start of a service.
func TestRecordOfAGrantWhoseMakerDied(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s, err := accountstore.New(t.Context(), conn, secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	log := audit.New(conn, time.Now)
	grants := grant.NewStore(conn, log)
	a, err := s.CreateAccount(t.Context(), access.Operator(""), "a")
	if err != nil {
		t.Fatal(err)
	}
	link := func() grant.Grant {
		t.Helper()
		_, l, err := s.LoginLink(t.Context(), access.Operator(""), a.ID, access.RoleOwner)
		if err != nil {
			t.Fatal(err)
		}
		return grant.Grant{Link: l.ID, Account: a.ID}
	}
	olga, err := s.GrantOperator(t.Context(), access.Operator(""), "example", "olga")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		of     grant.Grant
		repair func(grant.Grant) error
		beside []string // what is in the log besides, after it
	}{
		"a repeat": {link(), func(g grant.Grant) error {
			if err := s.RevokeLoginLink(t.Context(), access.Operator(""), a.ID, g.Link); !errors.Is(err,
				grant.ErrNoLink) {
				return fmt.Errorf("it was there still: %w", err)
			}
			return nil
		}, nil},
		"a start": {link(), func(grant.Grant) error { return s.RepairLog(t.Context()) }, nil},
		"a grant": {grant.Grant{Network: olga.Network, Subject: olga.Subject}, func(g grant.Grant) error {
			_, err := s.GrantOperator(t.Context(), access.Operator(""), g.Network, g.Subject)
			return err
		}, []string{audit.OperatorGranted, audit.OperatorGranted}},
	} {
		if err := grants.EndWithoutRecord(t.Context(), c.of); err != nil {
			t.Fatal(err)
		}
		if is, err := grants.Granted(t.Context(), c.of); err != nil || is {
			t.Errorf("%s: it is in force: %t, %v", what, is, err)
		}
		before, err := log.Last(t.Context(), c.of.Log())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to repair
			if err := c.repair(c.of); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.Audit(t.Context(), c.of.Log(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		want := append([]string{audit.LinkRevoked}, c.beside...)
		var got []string
		for _, r := range slices.Backward(page.Records) {
			if r.Number > before {
				got = append(got, r.What)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: then the log tells %q, want %q", what, got, want)
		}
	}
}

// A grant of a newer build keeps the records of no other from the log.
func TestNewerGrantKeepsNoOtherFromTheLog(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	log := audit.New(conn, time.Now)
	grants := grant.NewStore(conn, log)
	olga, err := grants.GrantOperator(t.Context(), access.Operator(""), "example", "olga")
	if err != nil {
		t.Fatal(err)
	}
	if err := grants.EndWithoutRecord(t.Context(), grant.Grant{Network: olga.Network,
		Subject: olga.Subject}); err != nil {
		t.Fatal(err)
	}
	natstest.Publish(t, conn, topology.BucketSubject(topology.BucketOperations, "operator.newer"),
		[]byte(`{"v":99}`))
	if err := grants.RepairLog(t.Context()); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("the newer grant: %v", err)
	}
	page, err := log.Audit(t.Context(), audit.ServiceLog, "", 0)
	if err != nil || len(page.Records) != 2 || page.Records[0].Who.Name != "dead" {
		t.Errorf("the log has %+v, %v; want the end of the grant", page.Records, err)
	}
}
