package flow

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"verifyd/edge/network"
	"verifyd/natsconf/secretbox"
)

const (
	// flowVersion is carried by every flow, so that a later build can recognize an older one.
	flowVersion = 1
	// tagLen is how much of a state's hash is in a cookie's name: 80 bits keep a browser's few attempts
	// apart. The state itself is compared as a whole.
	tagLen = 16
	// maxFlowBytes bounds what is decoded. A flow has about 500.
	maxFlowBytes = 2048
)

// errFlow is returned for a cookie value that is not a flow of this service, build and cookie name. It quotes
// nothing.
var errFlow = errors.New("not a sign-in flow of this service")

// Flow is one attempt of one browser: what must be known when the browser comes back from the identity
// network. Only the sealed cookie holds it.
type Flow struct {
	// About is what the attempt is for, up to its owner: a session's token, or where the browser goes
	// afterwards.
	About    string          `json:"session"`
	Network  string          `json:"network"`
	Attempt  network.Attempt `json:"attempt"`
	IssuedAt time.Time       `json:"iat"`
	// Browser is the BrowserHash of the browser that began the attempt. A return to another one is refused
	// (Browsers.Began).
	Browser string `json:"browser,omitempty"`
	// Platform reports that the attempt is to prove a platform account, and nothing else.
	Platform bool `json:"platform,omitzero"`
	// Lang is the language that was chosen on the sign-in page.
	Lang string `json:"lang,omitempty"`
}

type flowRecord struct {
	Version int `json:"v"`
	Flow
}

var hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hash identifies the attempt of a state in places that others may read, in the store and in a cookie's name:
// SHA-256 in lower-case base32, 52 characters.
func Hash(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hashEncoding.EncodeToString(sum[:])
}

// tagOf is the part of the hash that is in the cookie's name.
func tagOf(state string) string { return Hash(state)[:tagLen] }

// sealFlow returns the cookie value of a flow, in unpadded base64url.
func sealFlow(box *secretbox.Box, f Flow) (string, error) {
	plain, err := json.Marshal(flowRecord{flowVersion, f})
	if err != nil {
		return "", fmt.Errorf("encode flow: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(box.Seal(plain, tagOf(f.Attempt.State))), nil
}

// openFlow reads a cookie value. The seal is bound to the tag, so that a value under another cookie's name
// does not open. The error is errFlow.
func openFlow(box *secretbox.Box, tag, value string) (Flow, error) {
	if len(value) > maxFlowBytes {
		return Flow{}, errFlow
	}
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || base64.RawURLEncoding.EncodeToString(sealed) != value { // it has one spelling
		return Flow{}, errFlow
	}
	plain, err := box.Open(sealed, tag)
	if err != nil {
		return Flow{}, errFlow
	}
	var r flowRecord
	if err := json.Unmarshal(plain, &r); err != nil || r.Version != flowVersion ||
		tagOf(r.Attempt.State) != tag {
		return Flow{}, errFlow
	}
	return r.Flow, nil
}
