package flow

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/base32"
)

// Cookies keeps flows in the browser: one cookie per attempt, so that several tabs do not overwrite each
// other.
//
// A cookie stays after its attempt is spent: with it a reload of the provider's return, or a press on Back,
// still finds its session and lands on the clean page. The store, which no browser can turn back, decides
// whether an attempt is spent.
type Cookies struct {
	Config

	prefix string // of the cookies' names, as they are sent
}

// Config is the place of one owner's cookies.
type Config struct {
	Cookies page.Cookies
	Box     *secretbox.Box // of the owner's use
	Name    string         // how the cookies' names begin
	Path    string         // below the base URL, that browsers send them to
	// attempts that one browser may have open: each is 0.7 to 1.4 KB of a request's header
	Max int
	Now func() time.Time
}

// NewCookies returns the cookies of one owner.
func NewCookies(c Config) Cookies { return Cookies{c, c.Cookies.Name(c.Name)} }

// Keep sets the cookie of a flow, until the given instant.
func (c Cookies) Keep(w http.ResponseWriter, f Flow, until time.Time) error {
	value, err := sealFlow(c.Box, f)
	if err != nil {
		return err
	}
	seconds := int(until.Sub(c.Now()) / time.Second)
	http.SetCookie(w, c.cookie(tagOf(f.Attempt.State), value, max(seconds, 1)))
	return nil
}

func (c Cookies) drop(w http.ResponseWriter, tag string) { http.SetCookie(w, c.cookie(tag, "", -1)) }

func (c Cookies) cookie(tag, value string, maxAge int) *http.Cookie {
	return c.Cookies.New(c.Name+tag, value, c.Path, maxAge)
}

// Find returns the flow that a return with this state belongs to. A cookie of the state's name that does not
// open is removed.
func (c Cookies) Find(w http.ResponseWriter, r *http.Request, state string) (Flow, bool) {
	tag := tagOf(state)
	found := r.CookiesNamed(c.prefix + tag) // more than one if a neighbouring host has set its own
	for _, cookie := range found {
		f, err := openFlow(c.Box, tag, cookie.Value)
		if err == nil && f.Attempt.StateIs(state) {
			return f, true
		}
	}
	if len(found) > 0 {
		c.drop(w, tag)
	}
	return Flow{}, false
}

// MakeRoom removes cookies that do not open, and the oldest flows until there is room for one more.
func (c Cookies) MakeRoom(w http.ResponseWriter, r *http.Request) {
	type held struct {
		tag    string
		issued time.Time
	}
	var flows []held
	for _, cookie := range r.Cookies() {
		tag, ours := strings.CutPrefix(cookie.Name, c.prefix)
		if !ours {
			continue
		}
		f, err := openFlow(c.Box, tag, cookie.Value)
		if err != nil {
			c.drop(w, tag)
			continue
		}
		flows = append(flows, held{tag, f.IssuedAt})
	}
	slices.SortFunc(flows, func(a, b held) int { return b.issued.Compare(a.issued) })
	for _, old := range flows[min(len(flows), c.Max-1):] {
		c.drop(w, old.tag)
	}
}

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

// Hash identifies the attempt of a state in places that others may read, in the store and in a cookie's name:
// SHA-256 in lower-case base32, 52 characters.
func Hash(state string) string {
	sum := sha256.Sum256([]byte(state))
	return base32.Lower.EncodeToString(sum[:])
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
