package manage

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/secrets"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
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

const (
	// maxRequests bounds the concurrent requests of a process. Each costs reads of the store's leader before
	// its token is known to be valid.
	maxRequests = 32
	// maxOfAddress bounds those of one address, so that somebody who guesses tokens does not keep others out.
	maxOfAddress = 8
)

// Directory holds accounts and keys in memory; a *keymirror.Mirror.
type Directory interface {
	Keys(account string) []account.Key
	Name(id string) (string, bool)
}

// FailedKeys limits how often an address may send requests without a valid token; a *limit.Failures.
type FailedKeys interface {
	Fail(address netip.Addr, now time.Time) limit.Decision
}

// Config is what the handler needs. Fields without a default are required.
type Config struct {
	BaseURL    string // without a final slash
	Accounts   *accountstore.Store
	Conn       *natsconf.Conn
	Key        secretbox.Key
	Directory  Directory
	Store      *limit.Waiting   // how requests wait for the store
	Networks   func() []Network // default: none
	FailedKeys FailedKeys       // default: no limit
	Now        func() time.Time // default: time.Now
}

// Handler answers the management interface.
type Handler struct {
	Config

	places  *limit.Places
	repeats repeats
}

// New returns the handler. It starts nothing.
func New(c Config) (*Handler, error) {
	if c.Accounts == nil || c.Conn == nil || c.Directory == nil || c.Store == nil {
		return nil, errors.New("manage: Accounts, Conn, Directory and Store are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Networks == nil {
		c.Networks = func() []Network { return nil }
	}
	return &Handler{
		Config: c, places: limit.NewPlaces(maxRequests), repeats: repeats{c.Conn, c.Key.Box(answerUse)},
	}, nil
}

//go:embed openapi.yaml
var document []byte

// call is an authorized request.
type call struct {
	by   access.Actor
	http *http.Request // its context bounds requests to the store
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

func (h *Handler) operations() []operation {
	return slices.Concat(accountCalls{h}.operations(), keyCalls{h}.operations(), memberCalls{h}.operations(),
		secretCalls{h}.operations(), h.auditOperations(), h.networkOperations())
}

// Routes returns the routes for the edge.
func (h *Handler) Routes() []web.Route {
	routes := []web.Route{{
		Method: http.MethodGet, Path: pathOpenAPI, Name: "manage_openapi",
		Handler: page.Fixed("application/yaml", "no-cache", document),
	}}
	for _, o := range h.operations() {
		routes = append(routes, web.Route{Method: o.method, Path: o.path, Name: o.name, Handler: h.handle(o)})
	}
	return routes
}

// handle answers an operation, if the token allows it.
func (h *Handler) handle(o operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, p := h.answer(o, r)
		if p != nil {
			web.WriteProblem(w, r, p)
			return
		}
		a.headers(w.Header())
		web.WriteJSON(w, a.status, "application/json", a.doc)
	})
}

func (h *Handler) answer(o operation, r *http.Request) (answer, *problem.Problem) {
	event := web.EventFrom(r.Context())
	release, err := h.places.Acquire(limit.Share{Of: event.ClientIP.String(), Max: maxOfAddress})
	if err != nil {
		return answer{}, &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "Too many requests to the management interface are " +
				"under way; send them one after the other.", RetryAfter: request.RetryUnavailable,
		}
	}
	defer release()
	ctx, done, err := h.Store.Begin(r.Context())
	if err != nil {
		return answer{}, request.StoreProblem(err)
	}
	defer done()
	token, p := h.authorize(ctx, r)
	if p != nil {
		return answer{}, p
	}
	event.Key = token.Token
	if !token.Allows(o.scope) {
		return answer{}, &problem.Problem{Code: codeScopeMissing,
			Detail: "This takes the scope " + string(o.scope) + ", which the token " + token.Token +
				" does not have. Scopes do not change: make another token, with verifyd operator token " +
				"create."}
	}
	if id := r.PathValue("account"); account.IsID(id) {
		event.Account = id
	}
	c := call{by: access.OperatorToken(token.Token, token.Name), http: r.WithContext(ctx)}
	if o.makes {
		return h.once(c, o.do)
	}
	return o.do(c)
}

// authorize finds the token of a request. An address that has failed too often gets a Retry-After instead of
// the reason; a valid token is never refused because of others at its address.
func (h *Handler) authorize(ctx context.Context, r *http.Request) (grant.Grant, *problem.Problem) {
	token, p := h.identify(ctx, r)
	if p == nil || p.Code != codeTokenMissing && p.Code != codeTokenInvalid ||
		h.FailedKeys == nil {
		return token, p
	}
	if d := h.FailedKeys.Fail(web.EventFrom(r.Context()).ClientIP, h.Now()); !d.Allowed {
		return token, &problem.Problem{
			Code: problem.CodeTooManyFailedKeys,
			Detail: "Too many requests without a valid key or token came from this address; fix the token " +
				"first.",
			RetryAfter: d.RetryAfter,
		}
	}
	return token, p
}

func (h *Handler) identify(ctx context.Context, r *http.Request) (grant.Grant, *problem.Problem) {
	secret, detail := request.Bearer(r.Header, "an operator token", "<TOKEN>")
	if detail != "" {
		return grant.Grant{}, &problem.Problem{Code: codeTokenMissing, Detail: detail}
	}
	refuse := func(detail string) (grant.Grant, *problem.Problem) {
		return grant.Grant{}, &problem.Problem{Code: codeTokenInvalid, Detail: detail}
	}
	token, err := h.Accounts.Token(ctx, secret)
	switch {
	case errors.Is(err, secrets.ErrMalformedKey):
		return refuse("This is not an operator token of this service, or a character of it is missing or " +
			"wrong; one begins with " + secrets.OperatorPrefix + ".")
	case errors.Is(err, grant.ErrNoToken):
		return refuse("This operator token is not known here.")
	case err != nil:
		return grant.Grant{}, request.StoreProblem(err)
	}
	switch token.State(h.Now()) {
	case grant.TokenRevoked:
		return refuse("This operator token was revoked.")
	case grant.TokenExpired:
		return refuse("This operator token expired on " + web.Timestamp(token.Until) + ".")
	default:
		return token, nil
	}
}
