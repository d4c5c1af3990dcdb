package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"verifyd/edge/network/kept"
	"verifyd/sessions/urlpolicy"
)

const (
	defaultRequestTimeout = 10 * time.Second // a user is waiting at the other end
	connectTimeout        = 5 * time.Second  // leaves half of the request's time for its answer
	maxAnswerBytes        = 64 << 10         // token and user-info answers are a few KiB
	maxMetadataBytes      = 1 << 20          // key sets carry certificate chains and many keys
)

// boundedTransport is the one way to a provider. It bounds each request in time and each answer in bytes, and
// reads the answer whole, so that an exceeded limit comes back as a typed error: x/oauth2 and go-oidc flatten
// errors of a body's Read into text.
type boundedTransport struct {
	transport http.RoundTripper
	maxBytes  int64
	timeout   time.Duration // for the whole request: name, connection, TLS, answer
}

// newTransport returns the transport under a network's bounded transports. It keeps connections and sends
// nothing twice: a code is redeemed once, so a POST that is sent again turns a good sign-in into
// invalid_grant or triggers the provider's theft alarm (RFC 6749 §4.1.2). There is no proxy: secrets go to
// the provider, not to a host that the environment names.
//
// If publicOnly, only public addresses are reached; see guard. Its connections are its own, so that none was
// dialled without the guard.
func newTransport(o Options, publicOnly bool) *kept.Transport {
	switch {
	case publicOnly:
		o.Dial = guard(o.Dial)
	case o.Dial == nil:
		o.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return kept.New(kept.Config{
		Dial: o.Dial, Now: o.Now, TLS: &tls.Config{
			RootCAs: o.RootCAs, VerifyConnection: o.VerifyConnection, MinVersion: tls.VersionTLS12,
		},
	})
}

// guard lets a dial reach public addresses only. It checks the address that is being connected to, after DNS
// and before anything is sent: a name cannot lead elsewhere between the check and the connection.
func guard(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context,
	string, string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: connectTimeout, Control: public.Control}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil && !isPublic(conn.RemoteAddr()) { // from Options.Dial, which has no control function
			_ = conn.Close()
			return nil, urlpolicy.ErrRefusedAddress
		}
		return conn, err
	}
}

// public judges addresses as it judges those of callbacks, without the additional ones that an operator
// allows.
var public = urlpolicy.NewPolicy(nil, nil)

// isPublic reports whether a connection leads to a public address.
func isPublic(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && public.CheckIP(tcp.AddrPort().Addr().Unmap()) == nil
}

// client returns the transport as go-oidc and x/oauth2 want it.
func (d *boundedTransport) client() *http.Client { return &http.Client{Transport: d} }

// RoundTrip sends req and reads its whole answer. Redirects are errors for every method: a redirected POST
// would carry the code, and a redirected GET the access token, to an address that is not configured. For a
// GET any status except 200 is an error.
func (d *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), d.timeout)
	defer cancel()
	once := req.Clone(ctx)
	once.Header.Set("Accept", "application/json")
	once.Header.Set("Accept-Encoding", "identity") // nothing here decompresses anything
	once.Header.Set("User-Agent", "verifyd")
	resp, err := d.transport.RoundTrip(once)
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, errRedirect
	}
	if req.Method == http.MethodGet && resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, d.maxBytes+1))
	// A provider that sees the connection close may end its half answer properly, and win the race against
	// the close: an answer that is read after the deadline is not trusted to be whole.
	if err != nil || ctx.Err() != nil {
		return nil, failure(ctx, err)
	}
	if int64(len(body)) > d.maxBytes {
		return nil, fmt.Errorf("%w: over %d bytes", errTooLarge, d.maxBytes)
	}
	if req.Method == http.MethodPost {
		body = tokenAnswer(resp.Header, body)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// tokenAnswer reduces the answer to a POST, as of a token endpoint, to the members that are used, and names
// it JSON if it is (RFC 6749 §5.1): x/oauth2 refuses the whole answer for a member of another type, and reads
// it as a form unless its type is application/json. Any other answer stays as it is.
func tokenAnswer(h http.Header, body []byte) []byte {
	var all map[string]jsontext.Value
	if json.Unmarshal(body, &all) != nil || all == nil {
		return body
	}
	used := map[string]jsontext.Value{}
	for _, name := range []string{
		"access_token", "token_type", "id_token", "error", "error_description", "error_uri", "message",
		"request_uri",
	} {
		if v, ok := all[name]; ok && v.Kind() == '"' {
			used[name] = v
		}
	}
	plain, err := json.Marshal(used, json.Deterministic(true))
	if err != nil {
		return body
	}
	h.Set("Content-Type", "application/json")
	return plain
}

// failure is the context's error if that has ended, since a connection that it cut may report anything.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &transportError{err}
}
