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

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions/base32"
)

// Namespace distinguishes the subjects of one provider from those of another that a network's id was pointed
// at. Members, operators, logins and holds name it in the place where builds that knew no namespaces named
// the network's id.
//
// The first provider that an id is used with has the id itself: so records of those builds belong to it, they
// can run alongside this one, and an id that is never pointed elsewhere shows nothing of this. Every other
// provider has the id and a tag of its issuer.
type Namespace struct {
	Name    string    `json:"-"`       // "example", or "example~mzxw6ytboi"
	Network string    `json:"network"` // the id
	Issuer  string    `json:"issuer"`  // whose subjects are in it; see netsettings.Settings.IdentityIssuer
	Since   time.Time `json:"since"`   // when it was first used
}

// ErrUnreadable is returned if the record of a network's id is damaged, or a newer build has written it: then
// whose its identities are is not known.
var ErrUnreadable = errors.New("its record cannot be read")

// entryPrefix is before the id, and the tag if there is one, in the bucket topology.BucketIdentities. Entries
// of holds have no dot.
const entryPrefix = "network."

// storeWithin bounds the wait for another process's namespace to arrive.
const storeWithin = 2 * time.Second

// tagChars is the length of a tag: 50 bits, for the few providers that one id is ever pointed at.
const tagChars = 10

type stored struct {
	Version int `json:"v"`
	Namespace
}

// version is that of namespaces alone. Code that looks for holds in the bucket takes version 1 for no hold.
const version = 1

func tagOf(issuer string) string {
	sum := sha256.Sum256([]byte(issuer))
	return base32.Lower.EncodeToString(sum[:])[:tagChars]
}

// subject is the subject of the namespace. A network's id contains neither dot nor tilde.
func (n Namespace) subject() string {
	return topology.BucketSubject(topology.BucketIdentities,
		entryPrefix+strings.Replace(n.Name, "~", ".", 1))
}

// LookUp returns the namespace of a provider under a network's id, as Bind would, and changes nothing. first
// is the namespace of the id's first provider; its Issuer is empty if the id was never used. Its errors are
// ErrUnreadable and natsconf's.
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
		return Namespace{}, fmt.Errorf("the provider of %s: %w: %w", name, ErrUnreadable, err)
	}
	r.Name = name
	return r.Namespace, nil
}

// Bind is LookUp, but stores the result: the first provider that an id is used with stays its first. If two
// processes bind at once, one is first, and both get the same answer. A repeat is harmless. Its errors are
// ErrUnreadable and those of once.Store, without ErrTaken. If the store did not take it, theirs is what
// LookUp found; it is empty if another process may have stored another.
func Bind(ctx context.Context, c *natsconf.Conn, id, issuer string, now time.Time) (theirs,
	first Namespace, err error) {
	for {
		if theirs, first, err = LookUp(ctx, c, id, issuer); err != nil || !theirs.Since.IsZero() {
			return theirs, first, err
		}
		theirs.Since = now.UTC().Truncate(time.Millisecond)
		theirs, err = store(ctx, c, theirs)
		switch {
		case errors.Is(err, natsconf.ErrUncertain), errors.Is(err, natsconf.ErrConflict):
			return Namespace{}, first, err
		case err != nil || first.Issuer != "":
			return theirs, first, err
		case theirs.Issuer == issuer:
			return theirs, theirs, nil
		} // another provider has become the first: this one gets a namespace beside it
	}
}

// store stores a namespace, and returns the one that is stored: another process may have come first.
func store(ctx context.Context, c *natsconf.Conn, n Namespace) (Namespace, error) {
	data, err := json.Marshal(stored{version, n})
	if err != nil {
		return n, fmt.Errorf("encode the provider of %s: %w", n.Name, err)
	}
	ctx, cancel := wait.For(ctx, storeWithin)
	defer cancel()
	stream := topology.BucketStream(topology.BucketIdentities)
	m := &nats.Msg{Subject: n.subject(), Data: data}
	existing, err := once.Store(ctx, c, stream, m, once.ByConn(c, stream))
	if errors.Is(err, once.ErrTaken) {
		return decode(n.Name, existing.Data)
	}
	if err != nil {
		return n, fmt.Errorf("store the provider of %s: %w", n.Name, err)
	}
	return n, nil
}
