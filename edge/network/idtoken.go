package network

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"verifyd/edge/network/netsettings"
)

// clockLeeway is how far the provider's clock may be ahead. go-oidc allows as much for nbf.
const clockLeeway = 5 * time.Minute

// verifyIDToken returns the claims of the token answer's ID token, once everything of OpenID Connect Core 1.0
// §3.1.3.7 holds. go-oidc checks signature, issuer, audience and expiry; authorized party, time of issue,
// nonce and access token hash are checked here.
func (n *Network) verifyIDToken(ctx context.Context, p *provider, a Attempt, token *oauth2.Token) (claims,
	error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, n.newError(StageIDToken, ClassMalformed, "the token answer has no id_token")
	}
	// The JSON serialization of JWS carries unprotected headers; an ID token has the compact one (RFC 7519
	// §1).
	if strings.Count(raw, ".") != 2 {
		return nil, n.newError(StageIDToken, ClassMalformed,
			"the id_token is not a signed JWT in compact form")
	}
	if other := typeOf(raw); other != "" {
		return nil, n.newError(StageIDToken, ClassMalformed, "the id_token is a JWT of another type: "+other)
	}
	_, many := n.settings.Tenants()
	w := &witness{keys: p.keys}
	verifier := oidc.NewVerifier(n.settings.Issuer, w, &oidc.Config{
		ClientID:             n.settings.ClientID,
		SupportedSigningAlgs: p.algorithms,
		Now:                  n.issued,
		SkipIssuerCheck:      many, // isTenants checks it
	})
	verified, err := verifier.Verify(ctx, raw)
	if err != nil {
		return nil, n.idTokenError(w, err)
	}
	doc, err := parseClaims(w.payload)
	if err == nil {
		err = doc.checkTypes()
	}
	if err != nil {
		return nil, n.newError(StageIDToken, ClassMalformed, err.Error())
	}
	if many && !n.isTenants(verified.Issuer, p.cache, headerOf(raw).KeyID, doc) {
		return nil, n.newError(StageIDToken, ClassIssuer,
			"the ID token names another issuer than its tenant's, or than that of the key which signed it")
	}
	if class, detail := n.checkIDToken(a, token, verified, doc); class != "" {
		return nil, n.newError(StageIDToken, class, detail)
	}
	return doc, nil
}

// isTenants reports whether an ID token's issuer is one that the settings allow, that of its tid claim, and
// one that the key may sign for. Issuer and tenant are both in the signed token; that they agree keeps one
// tenant's token from passing for another's.
func (n *Network) isTenants(issuer string, keys *keyCache, keyID string, doc claims) bool {
	tenant, err := doc.text("tid")
	return err == nil && n.settings.IsTenantIssuer(issuer, tenant) &&
		keys.signs(keyID, func(keyIssuer string) bool {
			return netsettings.KeySignsFor(keyIssuer, issuer, tenant)
		})
}

// checkIDToken holds the checks that go-oidc leaves to its callers. The class is empty when all hold.
func (n *Network) checkIDToken(a Attempt, token *oauth2.Token, verified *oidc.IDToken, doc claims) (class,
	detail string) {
	if !doc.has("nonce") {
		return ClassNonce, "the ID token carries no nonce, which verifyd asked for"
	}
	nonce, _ := doc.text("nonce")
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(a.Nonce)) != 1 {
		return ClassNonce, "the ID token carries another nonce than the attempt's"
	}
	if azp, err := doc.text("azp"); doc.has("azp") || len(verified.Audience) > 1 {
		if err != nil || azp != n.settings.ClientID {
			return ClassAudience, "the ID token's authorized party is another client"
		}
	}
	if verified.IssuedAt.After(n.issued().Add(clockLeeway)) {
		return ClassEarly, "the ID token was issued in the future; check both clocks"
	}
	if verified.AccessTokenHash != "" && verified.VerifyAccessToken(token.AccessToken) != nil {
		return ClassSignature, "the access token is not the one that the ID token was issued with"
	}
	// go-oidc reads names whatever their case; the subject must not depend on the reader.
	if doc.subject() == "" || doc.subject() != verified.Subject {
		return ClassSubject, "the ID token has no clear sub"
	}
	return "", ""
}

// tokenHeader is what verifyd reads of a token's header.
type tokenHeader struct {
	KeyID string `json:"kid"`
	Type  string `json:"typ"`
}

func headerOf(raw string) (h tokenHeader) {
	head, _, _ := strings.Cut(raw, ".")
	if b, err := base64.RawURLEncoding.DecodeString(head); err == nil {
		_ = json.Unmarshal(b, &h) // go-oidc refuses what cannot be read
	}
	return h
}

// typeOf returns the type of a JWT that states to be something else than an ID token, such as an access token
// (at+jwt) or a logout token (RFC 8725 §3.11); empty for an ID token, which needs to state nothing.
func typeOf(raw string) string {
	kind := headerOf(raw).Type
	short := strings.TrimPrefix(strings.ToLower(kind), "application/")
	if strings.HasSuffix(short, "+jwt") {
		return netsettings.Plain(kind)
	}
	return ""
}

// The latest instant that a claim can state: the last second that all readers of JSON agree on.
const maxNumericDate = 1 << 53

// checkTypes returns which claim of an ID token is missing or has another JSON type than it must (OpenID
// Connect Core 1.0 §2).
func (c claims) checkTypes() error {
	for _, name := range []string{"iss", "sub", "nonce", "azp", "at_hash"} {
		if v, there := c[name]; there && v.Kind() != '"' && v.Kind() != 'n' {
			return fmt.Errorf("the ID token's %s is no text", name)
		}
	}
	for _, name := range []string{"exp", "iat", "nbf"} {
		var seconds float64
		v, there := c[name]
		switch {
		case !there && name != "nbf":
			return fmt.Errorf("the ID token has no %s", name)
		case there && (v.Kind() != '0' || json.Unmarshal(v, &seconds) != nil ||
			math.Abs(seconds) > maxNumericDate):
			return fmt.Errorf("the ID token's %s is no number of seconds", name)
		}
	}
	if v, there := c["aud"]; there && v.Kind() != '"' && v.Kind() != '[' {
		return errors.New("the ID token's aud is neither text nor a list")
	}
	return nil
}

// maxSignedInAgo is more than anybody asks for. An instant that is no such time must not overflow.
const maxSignedInAgo = 365 * 24 * time.Hour

// signedInAgo returns how long before the document was issued its user had signed in (auth_time, OpenID
// Connect Core 1.0 §2); zero if it does not say. Both instants are of the provider's clock, which may not be
// ours.
func (c claims) signedInAgo() time.Duration {
	var issued, signedIn float64
	if c["auth_time"].Kind() != '0' || json.Unmarshal(c["auth_time"], &signedIn) != nil ||
		c["iat"].Kind() != '0' || json.Unmarshal(c["iat"], &issued) != nil {
		return 0
	}
	ago := min(max(issued-signedIn, 0), maxSignedInAgo.Seconds())
	return time.Duration(ago * float64(time.Second))
}

// witness is between go-oidc and the key set. It keeps the payload whose signature was valid, and the typed
// error that go-oidc turns into text, so that failures can be distinguished. There is one per token.
type witness struct {
	keys    oidc.KeySet
	payload []byte
	err     error
}

// VerifySignature implements oidc.KeySet.
func (w *witness) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	w.payload, w.err = w.keys.VerifySignature(ctx, jwt)
	return w.payload, w.err
}

// idTokenError reports which check of go-oidc an ID token failed.
func (n *Network) idTokenError(w *witness, err error) *Error {
	var expired *oidc.TokenExpiredError
	switch {
	case w.err != nil:
		return n.fetchError(StageIDToken, w.err, ClassSignature,
			"the ID token is not signed by a key that the provider publishes")
	case w.payload == nil:
		return n.newError(StageIDToken, ClassSignature,
			"the ID token is not signed with an asymmetric algorithm that the provider announces")
	case errors.As(err, &expired):
		return n.newError(StageIDToken, ClassExpired, "the ID token is over; check both clocks")
	}
	var payload struct {
		Issuer    string  `json:"iss"`
		NotBefore float64 `json:"nbf"`
	}
	doc, perr := parseClaims(w.payload)
	if perr == nil {
		perr = doc.checkTypes()
	}
	switch {
	case perr != nil:
		return n.newError(StageIDToken, ClassMalformed, perr.Error())
	case json.Unmarshal(w.payload, &payload) != nil:
		return n.newError(StageIDToken, ClassMalformed,
			"the ID token's claims are not the JSON object expected")
	case !n.settings.IsIssuer(payload.Issuer):
		return n.newError(StageIDToken, ClassIssuer, "the ID token names another issuer")
	case payload.NotBefore > float64(n.issued().Add(clockLeeway).Unix()):
		return n.newError(StageIDToken, ClassEarly, "the ID token is not valid yet; check both clocks")
	}
	return n.newError(StageIDToken, ClassAudience, "the ID token is for another client")
}
