package network

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// keysPause is how long a fetched key set answers for the next ones. go-oidc asks for the keys anew whenever a token names a key that
// it does not know, as it must (OpenID Connect Core 1.0 §10.1.1); a flood of such tokens would become a flood of fetches. A provider
// that changes its keys publishes them before it signs with them, so a sign-in is seldom turned away for the pause.
const keysPause = 10 * time.Second

// keysAt gives the key set of an address: the one in use where the address has not changed, since it holds the keys.
func (n *Network) keysAt(address string) oidc.KeySet {
	if p := n.known.Load(); p != nil && p.keysAt == address {
		return p.keys
	}
	client := &http.Client{Transport: &keyShelf{door: n.keyDoor, now: n.now}}
	// Background: the key set outlives this request. Its fetches end with the door's deadline.
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), client), address)
}

// keyShelf is the door to one key set. It answers from memory for a while after each fetch, and repeats a failure for a shorter one.
type keyShelf struct {
	door *door
	now  func() time.Time

	mu      sync.Mutex // held during a fetch: a key set makes one at a time
	body    []byte
	failure error
	again   time.Time // from when the provider may be asked anew
}

// RoundTrip implements http.RoundTripper for GETs of the one address.
func (k *keyShelf) RoundTrip(req *http.Request) (*http.Response, error) {
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
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(k.body)),
	}, nil
}

func (k *keyShelf) fetch(req *http.Request) {
	k.body, k.failure = nil, nil
	resp, err := k.door.RoundTrip(req)
	if err == nil {
		k.body, err = io.ReadAll(resp.Body) // in memory already
		_ = resp.Body.Close()
	}
	k.failure, k.again = err, k.now().Add(keysPause)
	if err != nil {
		k.again = k.now().Add(discoveryPause)
	}
}
