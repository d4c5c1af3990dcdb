package network

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
)

// keysPause is how long a fetched key set answers for the next ones. go-oidc fetches the keys again whenever
// a token names a key that it does not know, as it must (OpenID Connect Core 1.0 §10.1.1); a flood of such
// tokens would become a flood of fetches. A provider that changes its keys publishes them before it signs
// with them, so a sign-in is seldom refused because of the pause.
const keysPause = 10 * time.Second

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

// keyCache is the transport to one key set. It answers from memory for a while after each fetch, and repeats
// a failure for a shorter one.
type keyCache struct {
	transport *boundedTransport
	now       func() time.Time

	mu      sync.Mutex // held during a fetch: a key set makes one at a time
	body    []byte
	failure error
	again   time.Time // from when the provider may be asked again
	owners  []keyOwner
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
	var set struct {
		Keys []keyOwner `json:"keys"`
	}
	if err == nil && json.Unmarshal(k.body, &set) == nil {
		k.owners = set.Keys
	}
	k.failure, k.again = err, k.now().Add(keysPause)
	if err != nil {
		k.again = k.now().Add(discoveryPause)
	}
}
