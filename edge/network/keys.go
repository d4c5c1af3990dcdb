package network

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"verifyd/edge/network/netsettings"
)

// A key set is fetched up to maxKeyFetches times in keysPause. go-oidc fetches the keys again whenever a
// token names a key that it does not know, as it must (OpenID Connect Core 1.0 §10.1.1), so that a new key is
// known at once; a flood of such tokens would become a flood of fetches, and gets the last answer instead.
const (
	keysPause     = 10 * time.Second
	maxKeyFetches = 3
)

// keysAt returns the key set of an address: the one in use if the address has not changed, since it holds the
// keys.
func (d *discovery) keysAt(address string, publicOnly bool) (oidc.KeySet, *keyCache) {
	if p := d.known.Load(); p != nil && p.keysAt == address && p.publicOnly == publicOnly {
		return p.keys, p.cache
	}
	cache := &keyCache{transport: d.keyTransport, now: d.now}
	if publicOnly {
		cache.transport = d.publicKeys
	}
	// Background: the key set outlives this request. Its fetches end with the transport's deadline.
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), &http.Client{Transport: cache}),
		address), cache
}

// keyCache is the transport to one key set. It answers from memory if the provider was asked too often, or
// has just failed.
type keyCache struct {
	transport *boundedTransport
	now       func() time.Time

	mu      sync.Mutex // held during a fetch: a key set makes one at a time
	body    []byte
	failure error
	again   time.Time   // from when the provider may be asked again
	asked   []time.Time // the last fetches
	owners  []keyOwner
	ignored []string
}

// keyOwner is the issuer whose tokens a key signs, as the provider states it; go-oidc ignores that. It comes
// from the last key set that was read.
type keyOwner struct {
	ID     string `json:"kid"`
	Issuer string `json:"issuer"`
}

// signs reports whether the key set has keys of an id, and all of them have a wanted issuer.
func (k *keyCache) signs(id string, wanted func(issuer string) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := false
	for _, key := range k.owners {
		if key.ID == id {
			if found = wanted(key.Issuer); !found {
				return false
			}
		}
	}
	return found
}

// RoundTrip implements http.RoundTripper for GETs of the one address.
func (k *keyCache) RoundTrip(req *http.Request) (*http.Response, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.now().Before(k.again) {
		k.fetch(req)
	}
	if k.failure != nil {
		return nil, k.failure
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(k.body)),
	}, nil
}

func (k *keyCache) fetch(req *http.Request) {
	k.body, k.failure = nil, nil
	resp, err := k.transport.RoundTrip(req)
	if err == nil {
		k.body, err = io.ReadAll(resp.Body) // in memory already
		_ = resp.Body.Close()
	}
	if err == nil {
		k.body, k.owners, k.ignored, err = readKeys(k.body)
	}
	k.failure, k.again = err, k.now()
	if k.asked = append(k.asked, k.again); len(k.asked) >= maxKeyFetches {
		k.asked = k.asked[len(k.asked)-maxKeyFetches:]
		k.again = k.asked[0].Add(keysPause)
	}
	if pause := k.now().Add(discoveryPause); err != nil && k.again.Before(pause) {
		k.again = pause
	}
}

// readKeys returns the key set with the keys that can be read, and why it ignores the others (RFC 7517 §5).
// Certificates are left out: nothing here needs them, and providers publish some that cannot be parsed. The
// error is a keySetError.
func readKeys(body []byte) (set []byte, owners []keyOwner, ignored []string, err error) {
	var found struct {
		Keys []jsontext.Value `json:"keys"`
	}
	// each key is judged by itself
	if json.Unmarshal(body, &found, jsontext.AllowDuplicateNames(true)) != nil || found.Keys == nil {
		return nil, nil, nil, notKeys(body)
	}
	usable := make([]jsontext.Value, 0, len(found.Keys))
	for i, raw := range found.Keys {
		key, why := readKey(raw)
		var owner keyOwner
		_ = json.Unmarshal(raw, &owner) // a key without a name has none
		if why == "" {
			usable, owners = append(usable, key), append(owners, owner)
			continue
		}
		ignored = append(ignored, netsettings.Plain(fmt.Sprintf("key %d (%q): %s", i+1, owner.ID, why)))
	}
	if len(usable) == 0 {
		return nil, nil, ignored, keySetError("the key set holds no key that can be read")
	}
	found.Keys = usable
	set, err = json.Marshal(found)
	return set, owners, ignored, err
}

// readKey returns a key without its certificates, or why it cannot be used.
func readKey(raw jsontext.Value) (_ jsontext.Value, why string) {
	var members map[string]jsontext.Value
	if json.Unmarshal(raw, &members) != nil {
		return nil, "it is not a JSON object"
	}
	for _, certificate := range []string{"x5c", "x5u", "x5t", "x5t#S256"} {
		delete(members, certificate)
	}
	plain, err := json.Marshal(members, json.Deterministic(true))
	var key jose.JSONWebKey
	if err == nil {
		err = key.UnmarshalJSON(plain)
	}
	switch {
	case err != nil:
		return nil, err.Error()
	case !key.Valid() || !key.IsPublic():
		return nil, "it is not a public key"
	}
	return plain, ""
}

// notKeys says what an answer is instead of a key set.
func notKeys(body []byte) error {
	switch text := bytes.TrimSpace(body); {
	case bytes.HasPrefix(body, []byte{0x1f, 0x8b}):
		return keySetError("the key set is compressed by gzip, which verifyd does not ask for")
	case bytes.HasPrefix(text, []byte("<")):
		return keySetError("the address of the key set answers with HTML")
	default:
		return keySetError(`the key set is not a JSON object with "keys"`)
	}
}

// Doubts fetches what the provider publishes, and returns what is odd about it, a line each: keys that cannot
// be used, in spite of which others sign, a way of authentication that the provider does not offer, and
// pushed requests that it offers and refuses. The error is an *Error.
func (n *Network) Doubts(ctx context.Context) (doubts []string, err error) {
	p, err := n.provider(ctx)
	if err != nil || p.cache == nil {
		return nil, err
	}
	if p.authDoubt != "" {
		doubts = append(doubts, p.authDoubt)
	}
	if p.pushAt != "" {
		if _, err := push(ctx, n, p, n.request(p, NewAttempt())); err != nil {
			doubts = append(doubts, "it offers pushed authorization requests, and accepts none: "+err.Error())
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.keysAt, nil)
	if err != nil {
		return nil, n.newError(StageDiscovery, ClassMalformed, "jwks_uri is no address")
	}
	resp, err := p.cache.RoundTrip(req)
	if err != nil {
		return nil, n.fetchError(StageIDToken, err, ClassMalformed, "the key set cannot be read")
	}
	_ = resp.Body.Close()
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	for _, why := range p.cache.ignored {
		doubts = append(doubts, "a key in its key set is ignored: "+why)
	}
	return doubts, nil
}
