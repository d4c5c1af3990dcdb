// Package namespace keeps apart the providers that a network's id has pointed at, so that no user inherits
// what belongs to the user with the same subject at another provider.
package namespace

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/edge/account/entry"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Namespace distinguishes the subjects of one provider from those of another that a network's id was pointed
// at. Members, operators, logins and holds name it in the place where builds that knew no namespaces named
// the network's id.
//
// The first provider that an id is used with has the id itself: so records of those builds belong to it, they
// can run alongside this one, and an id that is never pointed elsewhere shows nothing of this. Every other
// provider has the id and a tag of its issuer.
type Namespace struct {
	Name    string    // "example", or "example~mzxw6ytboi"
	Network string    // the id
	Issuer  string    // whose subjects are in it; see netsettings.Settings.IdentityIssuer
	Since   time.Time // when it was first used
}

// entryPrefix is before the id, and the tag if there is one, in the bucket topology.BucketIdentities. Entries
// of holds have no dot.
const entryPrefix = "network."

// tagChars is the length of a tag: 50 bits, for the few providers that one id is ever pointed at.
const tagChars = 10

type stored struct {
	Version int       `json:"v"`
	Network string    `json:"network"`
	Issuer  string    `json:"issuer"`
	Since   time.Time `json:"since"`
}

// version is that of namespaces alone. Code that looks for holds in the bucket takes version 1 for no hold.
const version = 1

func tagOf(issuer string) string {
	sum := sha256.Sum256([]byte(issuer))
	return secrets.Base32(sum[:])[:tagChars]
}

// subject is the subject of the namespace. A network's id contains neither dot nor tilde.
func (n Namespace) subject() string {
	return topology.BucketSubject(topology.BucketIdentities,
		entryPrefix+strings.Replace(n.Name, "~", ".", 1))
}

// LookUp returns the namespace of a provider under a network's id, as Bind would, and changes nothing. first
// is the namespace of the id's first provider; its Issuer is empty if the id was never used. Its errors are
// natsconf's.
func LookUp(ctx context.Context, c *natsconf.Conn, id, issuer string) (theirs, first Namespace,
	err error) {
	first, err = read(ctx, c, Namespace{Name: id})
	switch {
	case errors.Is(err, natsconf.ErrNotFound):
		return Namespace{Name: id, Network: id, Issuer: issuer}, Namespace{Name: id, Network: id}, nil
	case err != nil || first.Issuer == issuer:
		return first, first, err
	}
	return Namespace{Name: id + "~" + tagOf(issuer), Network: id, Issuer: issuer}, first, nil
}

func read(ctx context.Context, c *natsconf.Conn, n Namespace) (Namespace, error) {
	m, err := c.Last(ctx, topology.BucketStream(topology.BucketIdentities), n.subject())
	if err != nil {
		return Namespace{}, fmt.Errorf("read the provider of %s: %w", n.Name, err)
	}
	return decode(n.Name, m.Data)
}

func decode(name string, data []byte) (Namespace, error) {
	var r stored
	if err := natsconf.DecodeRecord(data, &r, &r.Version, version); err != nil {
		return Namespace{}, fmt.Errorf("the provider of %s: %w", name, err)
	}
	return Namespace{Name: name, Network: r.Network, Issuer: r.Issuer, Since: r.Since}, nil
}

// Bind is LookUp, but stores the result: the first provider that an id is used with stays its first. If two
// processes bind at once, one is first, and both get the same answer. A repeat is harmless.
func Bind(ctx context.Context, c *natsconf.Conn, id, issuer string, now time.Time) (theirs,
	first Namespace, err error) {
	for range entry.Tries {
		if theirs, first, err = LookUp(ctx, c, id, issuer); err != nil || !theirs.Since.IsZero() {
			return theirs, first, err
		}
		theirs.Since = now.UTC().Truncate(time.Millisecond)
		err = write(ctx, c, theirs)
		if first.Issuer == "" {
			first = theirs
		}
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			return theirs, first, err
		}
		if first != theirs { // it is there already, and nothing more is needed
			return theirs, first, nil
		}
		if err := entry.Pause(ctx); err != nil { // another's, or one's own, is on its way there
			return theirs, first, err
		}
	}
	return theirs, first, err
}

func write(ctx context.Context, c *natsconf.Conn, n Namespace) error {
	data, err := json.Marshal(stored{version, n.Network, n.Issuer, n.Since})
	if err != nil {
		return fmt.Errorf("encode the provider of %s: %w", n.Name, err)
	}
	m := entry.Replace(n.subject(), data, 0)
	if err := c.PublishOne(ctx, topology.BucketStream(topology.BucketIdentities), m); err != nil {
		return fmt.Errorf("store the provider of %s: %w", n.Name, natsconf.Kind(err))
	}
	return nil
}
