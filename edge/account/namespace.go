package account

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// Namespace is where the subjects of one provider are distinguished from those of another that a network's id
// was pointed at. Members, operators, logins and holds name it where builds that knew no namespaces named
// the network's id.
//
// The first provider that an id is used with has the id itself: so what those builds have stored is its
// own, they can run beside this one, and an id that is never pointed elsewhere shows nothing of it. Every
// other provider has the id and a tag of its issuer.
type Namespace struct {
	Name    string    // "example", or "example~mzxw6ytboi"
	Network string    // the id
	Issuer  string    // whose subjects are in it; see network.Settings.IdentityIssuer
	Since   time.Time // when it was first used
}

// namespaceEntry is before the id, and the tag where there is one, in the bucket
// natsconf.BucketIdentities. Entries of holds have no dot.
const namespaceEntry = "network."

// namespaceTag is the length of a tag: 50 bits, for the few providers that one id is ever pointed at.
const namespaceTag = 10

type namespaceRecord struct {
	Version int       `json:"v"`
	Network string    `json:"network"`
	Issuer  string    `json:"issuer"`
	Since   time.Time `json:"since"`
}

// namespaceVersion is of namespaces alone. Who looks for holds in the bucket takes version 1 for no hold
// of anybody.
const namespaceVersion = 1

func tagOf(issuer string) string {
	sum := sha256.Sum256([]byte(issuer))
	return idEncoding.EncodeToString(sum[:])[:namespaceTag]
}

// entry names the namespace in the store. A network's id holds neither dot nor tilde.
func (n Namespace) entry() string {
	return natsconf.BucketSubject(natsconf.BucketIdentities,
		namespaceEntry+strings.Replace(n.Name, "~", ".", 1))
}

// LookUpNamespace returns the namespace of a provider under a network's id, as BindNamespace would, and
// changes nothing. first is the namespace of the id's first provider; its Issuer is empty where the id was
// never used. Its errors are natsconf's.
func LookUpNamespace(ctx context.Context, c *natsconf.Conn, id, issuer string) (theirs, first Namespace,
	err error) {
	first, err = readNamespace(ctx, c, Namespace{Name: id})
	switch {
	case errors.Is(err, natsconf.ErrNotFound):
		return Namespace{Name: id, Network: id, Issuer: issuer}, Namespace{Name: id, Network: id}, nil
	case err != nil || first.Issuer == issuer:
		return first, first, err
	}
	return Namespace{Name: id + "~" + tagOf(issuer), Network: id, Issuer: issuer}, first, nil
}

func readNamespace(ctx context.Context, c *natsconf.Conn, n Namespace) (Namespace, error) {
	m, err := c.Last(ctx, natsconf.BucketStream(natsconf.BucketIdentities), n.entry())
	if err != nil {
		return Namespace{}, fmt.Errorf("read the provider of %s: %w", n.Name, err)
	}
	return decodeNamespace(n.Name, m.Data)
}

func decodeNamespace(name string, data []byte) (Namespace, error) {
	var r namespaceRecord
	if err := natsconf.DecodeRecord(data, &r, &r.Version, namespaceVersion); err != nil {
		return Namespace{}, fmt.Errorf("the provider of %s: %w", name, err)
	}
	return Namespace{Name: name, Network: r.Network, Issuer: r.Issuer, Since: r.Since}, nil
}

// BindNamespace is LookUpNamespace, and keeps what it says: the first provider that an id is used with
// stays its first. Of two processes that bind at once one is first, and both get the same answer. A repeat
// is harmless.
func BindNamespace(ctx context.Context, c *natsconf.Conn, id, issuer string, now time.Time) (theirs,
	first Namespace, err error) {
	for range onceTries {
		if theirs, first, err = LookUpNamespace(ctx, c, id, issuer); err != nil || !theirs.Since.IsZero() {
			return theirs, first, err
		}
		theirs.Since = now.UTC().Truncate(time.Millisecond)
		err = writeNamespace(ctx, c, theirs)
		if first.Issuer == "" {
			first = theirs
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return theirs, first, err
		}
		if first != theirs { // it is there already, which is all that is wanted
			return theirs, first, nil
		}
		if err := pause(ctx); err != nil { // another's, or one's own, is on its way there
			return theirs, first, err
		}
	}
	return theirs, first, err
}

func writeNamespace(ctx context.Context, c *natsconf.Conn, n Namespace) error {
	data, err := json.Marshal(namespaceRecord{namespaceVersion, n.Network, n.Issuer, n.Since})
	if err != nil {
		return fmt.Errorf("encode the provider of %s: %w", n.Name, err)
	}
	m := &nats.Msg{
		Subject: n.entry(), Data: data, Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}},
	}
	if err := c.PublishOne(ctx, natsconf.BucketStream(natsconf.BucketIdentities), m); err != nil {
		return fmt.Errorf("store the provider of %s: %w", n.Name, natsconf.Kind(err))
	}
	return nil
}

// People are how many know themselves by a namespace: members, each in each account, and operators.
type People struct{ Members, Operators int }

// PeopleOf counts members and operators by namespace. It opens no secret. Its errors are natsconf's.
func PeopleOf(ctx context.Context, c *natsconf.Conn) (map[string]People, error) {
	accounts, err := c.Newest(ctx, natsconf.BucketStream(natsconf.BucketAccounts),
		natsconf.BucketSubject(natsconf.BucketAccounts, ">"))
	if err != nil {
		return nil, fmt.Errorf("read the accounts' members: %w", err)
	}
	people := map[string]People{}
	for _, m := range accounts {
		var r accountRecord
		// the check of the master key, and what a newer build writes otherwise
		if json.Unmarshal(m.Data(), &r) != nil {
			continue
		}
		for _, member := range r.Members {
			p := people[member.Network]
			p.Members++
			people[member.Network] = p
		}
	}
	s := &Store{conn: c}
	operators, err := s.Operators(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range slices.DeleteFunc(operators, func(g Grant) bool { return g.Link != "" }) {
		p := people[g.Network]
		p.Operators++
		people[g.Network] = p
	}
	return people, nil
}
