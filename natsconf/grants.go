package natsconf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// grantsWait is how long the server's word on a user's permissions is waited for. Where a user may not even
// ask, nothing answers.
const grantsWait = time.Second

// ErrNoGrants is returned where the server does not report to a user what it may do: the user may not ask, or
// the server keeps no system account.
var ErrNoGrants = errors.New("the server does not tell what this credential may do")

// Grants are what the server lets a user do.
type Grants struct {
	User, Account   string
	publish, listen *server.SubjectPermission // nil: no limits
}

// Grants asks the server what this connection's user may do. The error is ErrNoGrants where it does not
// tell.
func (c *Conn) Grants(ctx context.Context) (Grants, error) {
	ctx, cancel := context.WithTimeout(ctx, grantsWait)
	defer cancel()
	m, err := c.NC.RequestWithContext(ctx, subjectUserInfo, nil)
	if err != nil {
		return Grants{}, fmt.Errorf("%w: %w", ErrNoGrants, err)
	}
	var answer struct {
		Data *server.UserInfo `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Data == nil {
		return Grants{}, fmt.Errorf("%w: unreadable answer", ErrNoGrants)
	}
	g := Grants{User: answer.Data.UserID, Account: answer.Data.Account}
	if p := answer.Data.Permissions; p != nil {
		g.publish, g.listen = p.Publish, p.Subscribe
	}
	return g, nil
}

// ErrCredential is returned for what another credential alone may write.
var ErrCredential = errors.New("this credential may not write that: run it with the operator's credential")

// MayWrite asks the server whether this connection's user may write to a subject; what is refused would get
// no answer. The error is ErrCredential. Where the server does not report it, the caller tries.
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

func may(p *server.SubjectPermission, subject string) bool {
	if p == nil {
		return true
	}
	if slices.ContainsFunc(p.Deny, func(deny string) bool { return server.SubjectsCollide(subject, deny) }) {
		return false
	}
	return len(p.Allow) == 0 || Covered(subject, p.Allow)
}

// Lacking lists what a role needs and the user may not do.
func (g Grants) Lacking(role Role) (lacking []string) {
	need := PermissionsOf(role, g.User)
	for _, s := range need.Publish.Allow {
		// Its own denials lie inside what it needs: it may do with what is left.
		if !may(g.publishBeyond(need.Publish.Deny), s) {
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

// publishBeyond leaves out denials that the role's own table has.
func (g Grants) publishBeyond(own []string) *server.SubjectPermission {
	if g.publish == nil {
		return nil
	}
	deny := slices.DeleteFunc(slices.Clone(g.publish.Deny), func(d string) bool { return Covered(d, own) })
	return &server.SubjectPermission{Allow: g.publish.Allow, Deny: deny}
}

// Excess lists what the user may write although its role does not: the facts and records that another role
// answers for.
func (g Grants) Excess(roles ...Role) (excess []string) {
	var own []string
	for _, role := range roles {
		if role == RoleOperator {
			return nil
		}
		own = append(own, writesOf(role)...)
	}
	for _, other := range Roles() {
		for _, s := range writesOf(other) {
			if !Covered(s, own) && !Covered(s, excess) && g.MayPublish(s) {
				excess = append(excess, s)
			}
		}
	}
	return excess
}

// writesOf lists what a role stores.
func writesOf(role Role) (subjects []string) {
	for _, a := range accesses[role] {
		subjects = append(subjects, a.writes...)
	}
	return subjects
}

// Covered reports whether one of those, which may have wildcards, covers a subject.
func Covered(subject string, those []string) bool {
	return slices.ContainsFunc(those, func(s string) bool { return server.SubjectMatchesFilter(subject, s) })
}
