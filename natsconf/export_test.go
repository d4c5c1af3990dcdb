package natsconf

import (
	"time"

	"verifyd/natsconf/permission"
)

// SeenUntil returns until when everything has been seen; each complete poll advances it.
func (f *Freshness) SeenUntil() time.Time { return time.Unix(0, f.until.Load()) }

// Collide reports whether there is a subject that both of two patterns match.
func Collide(one, other string) bool { return collide(one, other) }

// GrantsOf returns the grants of a user who may listen to everything.
func GrantsOf(user string, publish, never []string) Grants {
	return Grants{User: user, publish: &permission.Rule{Allow: publish, Deny: never}}
}
