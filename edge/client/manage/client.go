package manage

import (
	"context"
	"net/http"

	"verifyd/edge/client/call"
)

// Client calls a service with one operator token. It is safe for concurrent use.
type Client struct{ service Caller }

// Caller makes calls for a client. Create is Call for a POST that makes something, which may be tried again.
type Caller interface {
	Call(ctx context.Context, method, path string, in, out any) error
	Create(ctx context.Context, path, key string, in, out any) error
}

// Over makes a client that does not call over the network, for verifyd's own commands, in the process of the
// handler. There is no token, and errors are the caller's own.
func Over(c Caller) *Client { return &Client{c} }

// New makes a client for the service at baseURL, for example "https://verify.example.com"; a path prefix is
// kept. token begins with "vfyop_". Transport and time-out are taken from h; nil: the default. The error says
// which of them is of no use, and why.
func New(baseURL, token string, h *http.Client) (*Client, error) {
	service, err := call.New(baseURL, call.Secret{Text: token, Name: "operator token", Begins: "vfyop_"})
	if err != nil {
		return nil, err
	}
	service.Agent = "verifyd-manage"
	if h != nil {
		service.Use(h)
	}
	return &Client{service}, nil
}

// Error is a refusal of the service: the HTTP Status, and what its problem document says (RFC 9457).
type Error = call.Error

// Field is what is wrong with one member or parameter of a request: its Name, a Code and a Detail.
type Field = call.Field

// The codes that a program may want to distinguish; the service's documentation lists all of them.
const (
	CodeScopeMissing    call.Code = "scope_missing" // 403: Detail names the scope
	CodeAccountNotFound call.Code = "account_not_found"
	CodeAPIKeyNotFound  call.Code = "api_key_not_found" //nolint:gosec // no secret
	CodeAccountExists   call.Code = "account_exists"    // 409
	CodeStateConflict   call.Code = "state_conflict"    // 409: Detail says what has to be changed first
)
