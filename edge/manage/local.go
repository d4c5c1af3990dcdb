package manage

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"verifyd/edge/account/access"
	"verifyd/edge/account/input"
	"verifyd/edge/problem"
)

// Local answers the calls of a client in the same process (edge/client/manage.Over), for one actor, who needs
// no token. Only who has the handler can make one, and nothing that arrives over a network reaches it. Its
// answers are those of the routes, but for this:
//
//   - errors are those of package accountstore, or an *input.Error,
//   - nothing waits longer for the store than the context says,
//   - a repeat is not recognized, since no answer gets lost, and
//   - a list has one page.
type Local struct {
	operations []operation
	by         access.Actor
}

// Local returns one. The actor has to be an operator.
func (h *Handler) Local(by access.Actor) Local { return Local{h.operations(), by} }

// Create is Call for a POST; it takes no idempotency key.
func (l Local) Create(ctx context.Context, path, _ string, in, out any) error {
	return l.Call(ctx, http.MethodPost, path, in, out)
}

// Call does what a request would, and decodes its answer into out.
func (l Local) Call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	i := slices.IndexFunc(l.operations, func(o operation) bool { return o.takes(r) })
	if i < 0 {
		return fmt.Errorf("the management interface has no %s of this path", method)
	}
	a, p := l.operations[i].do(call{by: l.by, http: r, whole: true})
	if p != nil {
		return cause(p)
	}
	doc, err := json.Marshal(a.doc)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return json.Unmarshal(doc, out)
}

// cause returns the error behind a problem.
func cause(p *problem.Problem) error {
	switch {
	case p.Cause != nil:
		return p.Cause
	case len(p.Faults) > 0:
		return &input.Error{Field: p.Faults[0].Field, Detail: p.Faults[0].Detail}
	default:
		return &input.Error{Field: string(p.Code), Detail: p.Detail}
	}
}

// takes reports whether a request is for the operation, and sets what its path names.
func (o operation) takes(r *http.Request) bool {
	want, path := strings.Split(o.path, "/"), strings.Split(r.URL.EscapedPath(), "/")
	if r.Method != o.method || len(path) != len(want) {
		return false
	}
	for i, segment := range want {
		name, named := strings.CutPrefix(segment, "{")
		value, err := url.PathUnescape(path[i])
		if err != nil || !named && value != segment {
			return false
		}
		if named {
			r.SetPathValue(strings.TrimSuffix(name, "}"), value)
		}
	}
	return true
}
