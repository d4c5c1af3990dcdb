package simulation_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/simtest"
)

// identityNetwork is a network that users sign in with. It is in memory, and answers, hangs, breaks off and
// refuses as receivers do.
type identityNetwork struct {
	id, kind, address string
	rules             netsettings.Rules
}

// networks has one network of each protocol. The first checks the verifier of a code (RFC 7636) and issues
// no ID tokens. The second puts the nonce of a code into an ID token, and does not check the verifier.
var networks = []*identityNetwork{
	{
		id: "plain", kind: netsettings.KindOAuth2, address: "127.0.2.1:80",
		rules: netsettings.Rules{OneIdentityPer: netsettings.PerPlatform},
	},
	{
		id: "signed", kind: netsettings.KindOIDC, address: "127.0.2.2:80",
		rules: netsettings.Rules{DenySubjects: []string{"u0"}},
	},
}

const (
	networkClient = "verifyd"
	networkKeyID  = "k"
)

// networkKey signs ID tokens.
var networkKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func networkAt(address string) *identityNetwork {
	for _, n := range networks {
		if n.address == address {
			return n
		}
	}
	return nil
}

// issuer returns the network's address as its metadata has it.
func (n *identityNetwork) issuer() string { return "http://" + strings.TrimSuffix(n.address, ":80") }

// isTarget reports whether an answer redirects a browser to the network.
func (n *identityNetwork) isTarget(a answer) bool {
	return strings.HasPrefix(a.to, n.issuer()+"/authorize?")
}

func (n *identityNetwork) settings() netsettings.Settings {
	s := netsettings.Settings{
		ID: n.id, Name: n.id, Kind: n.kind, ClientID: networkClient, ClientSecret: "secret", Rules: n.rules,
		Platforms: []string{},
	}
	if n.kind == netsettings.KindOIDC {
		s.Issuer = n.issuer()
		return s
	}
	s.AuthorizationEndpoint, s.TokenEndpoint = n.issuer()+"/authorize", n.issuer()+"/token"
	s.UserInfoEndpoint = n.issuer() + "/userinfo"
	return s
}

// grant is what a network stores for a code.
type grant struct {
	network *identityNetwork
	attempt *attempt // for which it was issued
	subject string
	spent   bool
}

// issueCode signs a user in at the network, and returns the code.
func (n *identityNetwork) issueCode(w *world, a *attempt, subject string) (code string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code = fmt.Sprintf("c%d-%s", len(w.grants), a.name)
	w.grants[code] = &grant{network: n, attempt: a, subject: subject}
	w.noteLocked("%s signs %s in as %s", n.id, a.name, subject)
	return code
}

// receive serves a network's side of one connection.
func (n *identityNetwork) receive(w *world, wire *simtest.Conn) {
	defer wire.Close()
	exchange(wire, wire, func(q *http.Request, form url.Values) bool {
		p := &part{w: w, conn: wire, wire: wire, r: w.draw("%s answers %s", n.id, q.URL.Path)}
		status, doc, vouches := n.answer(w, q, form)
		body, err := json.Marshal(doc)
		if err != nil {
			w.fail("%s: %v", n.id, err)
		}
		p.right = fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body),
			body)
		p.said = func(code int, rest string) {
			if vouches != nil && code == http.StatusOK && strings.HasPrefix(rest, p.right) {
				w.mu.Lock()
				vouches.attempt.vouched, vouches.attempt.subject = true, vouches.subject
				w.noteLocked("%s vouches in %s", n.id, vouches.attempt.name)
				w.mu.Unlock()
			}
		}
		if w.odd(p.r, "network fails") {
			name := behaviourNames[p.r.IntN(len(behaviourNames))]
			w.note("%s: %s", n.id, name)
			return behaviours[name](p)
		}
		return p.status(status, p.right)
	})
}

// answer returns the right answer to a request, and the grant with which the network vouches for a user in
// an attempt; nil if it does not.
func (n *identityNetwork) answer(w *world, q *http.Request, form url.Values) (status int, doc any,
	vouches *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch q.URL.Path {
	case "/token":
		return n.token(w, form)
	case "/userinfo":
		g := w.grants[strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer of-")]
		if g == nil {
			return http.StatusUnauthorized, nil, nil
		}
		return http.StatusOK, map[string]any{"sub": g.subject}, g
	case "/.well-known/openid-configuration":
		return http.StatusOK, map[string]any{
			"issuer": n.issuer(), "authorization_endpoint": n.issuer() + "/authorize",
			"token_endpoint": n.issuer() + "/token", "jwks_uri": n.issuer() + "/keys",
			"id_token_signing_alg_values_supported": []string{"EdDSA"},
		}, nil
	case "/keys":
		public, _ := networkKey.Public().(ed25519.PublicKey)
		return http.StatusOK, map[string]any{"keys": []map[string]any{{
			"kty": "OKP", "crv": "Ed25519", "x": base64URL(public), "kid": networkKeyID, "alg": "EdDSA",
			"use": "sig",
		}}}, nil
	}
	return http.StatusNotFound, nil, nil
}

// token redeems a code. The lock is held.
func (n *identityNetwork) token(w *world, form url.Values) (status int, doc any, vouches *grant) {
	challenge := sha256.Sum256([]byte(form.Get("code_verifier")))
	a, g := w.attempts[base64URL(challenge[:])], w.grants[form.Get("code")]
	if a == nil || g == nil {
		w.failLocked("%s got the unknown code %q", n.id, form.Get("code"))
		return http.StatusBadRequest, nil, nil
	}
	a.posts = append(a.posts, time.Now())
	w.noteLocked("%s gets the code %s in %s", n.id, form.Get("code"), a.name)
	if g.network != n {
		w.failLocked("%s got a code of %s", n.id, g.network.id)
	}
	own := g.attempt == a
	if g.spent || n.kind == netsettings.KindOAuth2 && !own {
		return http.StatusBadRequest, map[string]any{"error": "invalid_grant"}, nil
	}
	g.spent = true
	answer := map[string]any{
		"access_token": "of-" + form.Get("code"), "token_type": "Bearer", "expires_in": 60,
	}
	if n.kind == netsettings.KindOIDC {
		answer["id_token"] = n.idToken(g)
		if own {
			vouches = g
		}
	}
	return http.StatusOK, answer, vouches
}

func (n *identityNetwork) idToken(g *grant) string {
	now := time.Now()
	claims, _ := json.Marshal(map[string]any{
		"iss": n.issuer(), "sub": g.subject, "aud": networkClient, "iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix(), "nonce": g.attempt.nonce,
	})
	token := base64URL([]byte(`{"alg":"EdDSA","kid":"`+networkKeyID+`"}`)) + "." + base64URL(claims)
	return token + "." + base64URL(ed25519.Sign(networkKey, []byte(token)))
}

func base64URL(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
