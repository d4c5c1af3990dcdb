package client

import (
	"net/http"

	"verifyd/edge/client/call"
)

// Client calls the service with one API key. It is safe for concurrent use.
type Client struct{ service *call.Service }

// Option changes what New makes.
type Option func(*Client)

// WithHTTPClient takes transport, time-out and cookie jar from h. Its redirect rule is not taken: no redirect
// is ever followed, since the API key would go along.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.service.Use(h) } }

// WithUserAgent sets the User-Agent field, for example "harbor-bot/1.4". Default "verifyd-client".
func WithUserAgent(agent string) Option { return func(c *Client) { c.service.Agent = agent } }

// New makes a client for the service at baseURL, for example "https://verify.example.com"; a path prefix is
// kept. apiKey begins with "vfy_" or "vfytest_". The error says which of the two is of no use, and why.
func New(baseURL, apiKey string, options ...Option) (*Client, error) {
	service, err := call.New(baseURL,
		call.Secret{Text: apiKey, Name: "API key", Begins: "vfy_ or vfytest_"})
	if err != nil {
		return nil, err
	}
	service.Agent = "verifyd-client"
	c := &Client{service}
	for _, o := range options {
		o(c)
	}
	return c, nil
}
