package manage

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/secrets"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
)

// The paths of the routes.
const (
	pathOpenAPI  = "/manage/openapi.yaml"
	pathAccounts = "/manage/accounts"
	pathAccount  = "/manage/accounts/{account}"
	pathRestore  = "/manage/accounts/{account}/restore"
	pathAllKeys  = "/manage/keys"
	pathKeys     = "/manage/accounts/{account}/keys"
	pathKey      = "/manage/accounts/{account}/keys/{key}"
	pathRoll     = "/manage/accounts/{account}/keys/{key}/roll"
	pathMembers  = "/manage/accounts/{account}/members"
	pathAudit    = "/manage/accounts/{account}/audit"
	pathMove     = "/manage/accounts/{account}/members/move"
	pathLinks    = "/manage/accounts/{account}/login-links"
	pathSecrets  = "/manage/accounts/{account}/secrets"
	pathPrevious = "/manage/accounts/{account}/secrets/previous"
	pathInvites  = "/manage/accounts/{account}/invites"
	pathInvite   = "/manage/accounts/{account}/invites/{invite}"
	pathNetworks = "/manage/networks"
)

// Directory holds accounts and keys in memory; a *keymirror.Mirror.
type Directory interface {
	Keys(account string) []account.Key
	Name(id string) (string, bool)
}

// Config is what the handler needs. Fields without a default are required.
type Config struct {
	BaseURL    string // without a final slash
	Accounts   *accountstore.Store
	Conn       *natsconf.Conn
	Key        secretbox.Master
	Directory  Directory
	Store      *places.Waiting    // how requests wait for the store
	Networks   func() []Network   // default: none
	FailedKeys request.FailedKeys // default: no limit
	Now        func() time.Time   // default: time.Now
}

// Handler answers the management interface.
type Handler struct {
	Config

	places  *places.Places
	repeats repeats
}

// call is an authorized request.
type call struct {
	by    access.Actor
	http  *http.Request // its context bounds requests to the store
	whole bool          // a list has one page
}

func (c call) ctx() context.Context { return c.http.Context() }

// account returns the id of the account in the path. It is never empty, which would mean any.
func (c call) account() string { return cmp.Or(c.http.PathValue("account"), "-") }

// key returns the id of the key in the path. The key itself, which the store accepts too, would be in the
// logs of proxies.
func (c call) key() string {
	id := c.http.PathValue("key")
	if _, ok := secrets.EntriesOf(id); !ok {
		return "-"
	}
	return id
}

// answer is the answer to a request.
type answer struct {
	status   int
	doc      any
	replayed bool // an earlier request got the same
}

// operation is a row of the route table: its input, and what it does.
type operation struct {
	method, path, name string
	scope              grant.Scope
	makes              bool // something that a repeat would create again: it accepts an Idempotency-Key
	do                 func(call) (answer, *problem.Problem)
}
