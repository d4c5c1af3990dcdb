package manage

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/secrets"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
)

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
		Config: c, places: places.New(places.Pools.Managing),
		repeats: repeats{c.Conn, c.Key.Box(answerUse)},
	}, nil
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
			if p.Code.Status() < http.StatusInternalServerError {
				p.Cause = nil // the log has no refusals' causes
			}
			web.WriteProblem(w, r, p)
			return
		}
		a.headers(w.Header())
		web.WriteJSON(w, a.status, "application/json", a.doc)
	})
}

func (h *Handler) answer(o operation, r *http.Request) (answer, *problem.Problem) {
	event := web.EventFrom(r.Context())
	who := places.Request{Of: limit.SiteOf(event.ClientIP), Must: true}
	release, err := h.places.Acquire(who)
	if err != nil {
		return answer{}, &problem.Problem{
			Code: problem.CodeUnavailable, Detail: "Too many requests to the management interface are in " +
				"progress; send them one after the other.", RetryAfter: request.RetryUnavailable,
		}
	}
	defer release()
	ctx, done, err := h.Store.Begin(r.Context(), who)
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
		return answer{}, &problem.Problem{Code: problem.CodeScopeMissing,
			Detail: "This requires the scope " + string(o.scope) + ", which the token " + token.Token +
				" does not have. Scopes do not change: create another token, with verifyd operator token " +
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
	if p != nil && (p.Code == problem.CodeTokenMissing || p.Code == problem.CodeTokenInvalid) {
		p = request.Refuse(h.FailedKeys, r, h.Now(), p)
	}
	return token, p
}

func (h *Handler) identify(ctx context.Context, r *http.Request) (grant.Grant, *problem.Problem) {
	secret, detail := request.Bearer(r.Header, "an operator token", "<TOKEN>")
	if detail != "" {
		return grant.Grant{}, &problem.Problem{Code: problem.CodeTokenMissing, Detail: detail}
	}
	refuse := func(detail string) (grant.Grant, *problem.Problem) {
		return grant.Grant{}, &problem.Problem{Code: problem.CodeTokenInvalid, Detail: detail}
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

//go:embed openapi.yaml
var document []byte
