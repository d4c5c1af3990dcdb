package natsconf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"verifyd/natsconf/permission"
)

// errNoCredential is the error for a file that holds neither form of a credential.
var errNoCredential = errors.New(
	"it holds neither NATS credentials (a JWT and its seed) nor the seed of a user's nkey, which " +
		"begins with SU")

// errReplaced fails a try to connect as the user of a file that has become another user's.
var errReplaced = errors.New("the NATS credential was replaced: the next try uses it")

// credential proves a user to an external server, by a file that is read at each connect: it can be replaced
// while the service runs.
type credential struct {
	path string
	user string                    // the public nkey
	conn atomic.Pointer[nats.Conn] // once it is connected for the first time
}

// CredentialUser returns the public key of the user that a file's credential proves. Its errors never repeat
// the file's content.
func CredentialUser(path string) (string, error) {
	key, user, _, err := readCredential(path)
	if err == nil {
		key.Wipe()
	}
	return user, err
}

// readCredential reads which user a file stands for, and its key, which the caller wipes. signed: the file
// has what an account says of the user (a JWT), too.
func readCredential(path string) (key nkeys.KeyPair, user string, signed bool, err error) {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		return nil, "", false, fmt.Errorf("read the NATS credential: %w", err)
	}
	defer clear(b)
	key, err = nkeys.ParseDecoratedUserNKey(b)
	if err == nil {
		user, err = key.PublicKey()
	}
	if err != nil {
		return nil, "", false, fmt.Errorf("the NATS credential %s: %w", path, errNoCredential)
	}
	return key, user, bytes.Contains(b, []byte("BEGIN NATS USER JWT")), nil
}

// options returns how to connect as the user of a file.
func (c *credential) options() (nats.Option, error) {
	key, user, signed, err := readCredential(c.path)
	if err != nil {
		return nil, err
	}
	key.Wipe()
	c.user = user
	if signed {
		return nats.UserCredentials(c.path), nil
	}
	return nats.Nkey(user, c.sign), nil
}

// sign signs a server's challenge. The client has said by then which user it is. If the file has become
// another user's, the try fails, and the next one is that user's.
func (c *credential) sign(nonce []byte) ([]byte, error) {
	key, user, _, err := readCredential(c.path)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	if user == c.user {
		return key.Sign(nonce) //nolint:wrapcheck // to the client
	}
	if nc := c.conn.Load(); nc != nil { // which holds the lock of its options while it asks for a signature
		c.user, nc.Opts.Nkey = user, user
	}
	return nil, errReplaced
}

// userOfURL returns the user name in the first of the servers' URLs. A name without a password is a token,
// which is a secret.
func userOfURL(servers string) string {
	first, _, _ := strings.Cut(servers, ",")
	u, err := url.Parse(first)
	if err != nil {
		return ""
	}
	if _, hasPassword := u.User.Password(); !hasPassword {
		return ""
	}
	return u.User.Username()
}

// isToken reports whether a user's name can be part of a subject.
func isToken(user string) bool {
	return user != "" &&
		strings.Trim(user, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// grantsWait is how long to wait for the server's report of a user's permissions. If a user may not even ask,
// nothing answers.
const grantsWait = time.Second

// errNoGrants is returned if the server does not report to a user what it may do: the user may not ask, or
// the server keeps no system account.
var errNoGrants = errors.New("the server does not report what this credential may do")

// Grants are what the server lets a user do.
type Grants struct {
	User, Account   string
	publish, listen *permission.Rule // nil: no limits
}

// Grants asks the server what this connection's user may do. The error is errNoGrants if the server does not
// report it.
func (c *Conn) Grants(ctx context.Context) (Grants, error) {
	ctx, cancel := context.WithTimeout(ctx, grantsWait)
	defer cancel()
	m, err := c.NC.RequestWithContext(ctx, permission.SubjectUserInfo, nil)
	if err != nil {
		return Grants{}, fmt.Errorf("%w: %w", errNoGrants, err)
	}
	var answer struct {
		Data *struct {
			User        string `json:"user"`
			Account     string `json:"account"`
			Permissions *struct {
				Publish   *permission.Rule `json:"publish"`
				Subscribe *permission.Rule `json:"subscribe"`
			} `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Data == nil {
		return Grants{}, fmt.Errorf("%w: unreadable answer", errNoGrants)
	}
	g := Grants{User: answer.Data.User, Account: answer.Data.Account}
	if p := answer.Data.Permissions; p != nil {
		g.publish, g.listen = p.Publish, p.Subscribe
	}
	return g, nil
}

// ErrCredential is returned for a write that only another credential may make.
var ErrCredential = errors.New("this credential may not write that: run it with the operator's credential")

// MayWrite asks the server whether this connection's user may write to a subject; a refused write would get
// no answer. The error is ErrCredential. If the server does not report it, the caller tries.
func (c *Conn) MayWrite(ctx context.Context, subject string) error {
	if g, err := c.Grants(ctx); err == nil && !g.MayPublish(subject) {
		return ErrCredential
	}
	return nil
}

// MayPublish reports whether messages may be sent to all subjects that match.
func (g Grants) MayPublish(subject string) bool { return may(g.publish, subject) }

// MayListen reports whether all subjects that match may be listened to.
func (g Grants) MayListen(subject string) bool { return may(g.listen, subject) }

func may(p *permission.Rule, subject string) bool {
	if p == nil {
		return true
	}
	if slices.ContainsFunc(p.Deny, func(deny string) bool { return collide(subject, deny) }) {
		return false
	}
	return len(p.Allow) == 0 || Covered(subject, p.Allow)
}

// Lacking lists what a role needs and the user may not do. If a credential is kept off a consumer by its
// name, the other names are enough for a role that needs a wildcard: the table itself does that, and the
// table of a newer build, under which this build has to start, may do it with more of them.
func (g Grants) Lacking(role permission.Role) (lacking []string) {
	need := permission.Of(role, g.User)
	for _, s := range need.Publish.Allow {
		if !may(exceptConsumersOf(s, g.publish), s) {
			lacking = append(lacking, "publish "+s)
		}
	}
	for _, s := range need.Listen.Allow {
		if !g.MayListen(s) {
			lacking = append(lacking, "subscribe "+s)
		}
	}
	return lacking
}

// oneConsumer matches what JetStream is asked about one consumer by its name.
var oneConsumer = regexp.MustCompile(
	`^\$JS\.API\.CONSUMER\.(CREATE|MSG\.NEXT|DELETE)\.[^.*>]+\.[^.*>]+(\.>)?$`)

// exceptConsumersOf leaves out denials of single consumers that a wildcard includes.
func exceptConsumersOf(wildcard string, p *permission.Rule) *permission.Rule {
	if p == nil {
		return nil
	}
	deny := slices.DeleteFunc(slices.Clone(p.Deny), func(deny string) bool {
		return oneConsumer.MatchString(deny) && covers(wildcard, deny) && !covers(deny, wildcard)
	})
	return &permission.Rule{Allow: p.Allow, Deny: deny}
}

// Excess lists what the user may write although its role does not: the facts and records that another role
// answers for.
func (g Grants) Excess(roles ...permission.Role) (excess []string) {
	var own []string
	for _, role := range roles {
		if role == permission.RoleOperator {
			return nil
		}
		own = append(own, permission.WritesOf(role)...)
	}
	for _, other := range permission.Roles() {
		for _, s := range permission.WritesOf(other) {
			if !Covered(s, own) && !Covered(s, excess) && g.MayPublish(s) {
				excess = append(excess, s)
			}
		}
	}
	return excess
}

// Covered reports whether one of those, which may have wildcards, covers a subject.
func Covered(subject string, those []string) bool {
	return slices.ContainsFunc(those, func(s string) bool { return covers(s, subject) })
}

// The server's package has functions for this. But it starts a timer for its process when it is initialized,
// and processes that play schedules in virtual time (cmd/verifyd/simulation) are to do the same each time,
// whatever the clock says.

// covers reports whether a pattern matches whatever a subject does, which may be a pattern too.
func covers(pattern, subject string) bool {
	for {
		p, patternRest, patternMore := strings.Cut(pattern, ".")
		s, subjectRest, subjectMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case s == ">", p != "*" && p != s, patternMore != subjectMore:
			return false
		case !patternMore:
			return true
		}
		pattern, subject = patternRest, subjectRest
	}
}

// collide reports whether there is a subject that both of two patterns match.
func collide(one, other string) bool {
	for {
		a, oneRest, oneMore := strings.Cut(one, ".")
		b, otherRest, otherMore := strings.Cut(other, ".")
		switch {
		case a == ">" || b == ">":
			return true
		case a != b && a != "*" && b != "*", oneMore != otherMore:
			return false
		case !oneMore:
			return true
		}
		one, other = oneRest, otherRest
	}
}
