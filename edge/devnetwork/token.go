package devnetwork

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge/web"

	shared "verifyd/edge/page"
)

// routes is the table of doc.go.
func (p *Provider) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.answerMetadata)
	mux.HandleFunc("GET /authorize", p.drawAuthorize)
	mux.HandleFunc("POST /authorize", p.answerAuthorize)
	mux.HandleFunc("POST /token", p.answerToken)
	mux.HandleFunc("GET /userinfo", p.answerUserInfo)
	mux.HandleFunc("GET /jwks", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.keys)
	})
	mux.Handle("GET /"+style.Name, style)
	mux.Handle("GET /favicon.ico", shared.Icon())
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		drawProblem(w, http.StatusNotFound,
			"There is nothing at this address. Sign-ins start at the service that sends you here.")
	})
	// A client that reaches it can sign in as anybody: a foreign page must not, under a name that it made
	// resolve here.
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		drawProblem(w, http.StatusMisdirectedRequest,
			"This network is not called by the name in the address. Sign-ins start at the service that "+
				"sends you here.")
	})
	return web.OnlyOwnNames([]string{p.host()}, refuse, mux)
}

// host returns the name that the issuer is called by.
func (p *Provider) host() string {
	u, err := url.Parse(p.Issuer())
	if err != nil {
		return "" // never: it is an origin
	}
	return u.Host
}

// GET /.well-known/openid-configuration. RS256, which the specification wants every provider to offer, is
// left out: making an RSA key would slow each start.
func (p *Provider) answerMetadata(w http.ResponseWriter, _ *http.Request) {
	issuer := p.Issuer()
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                                issuer,
		"authorization_endpoint":                issuer + "/authorize",
		"token_endpoint":                        issuer + "/token",
		"userinfo_endpoint":                     issuer + "/userinfo",
		"jwks_uri":                              issuer + "/jwks",
		"response_types_supported":              []string{"code"},
		"grant_types_supported":                 []string{"authorization_code"},
		"subject_types_supported":               []string{"public"},
		"scopes_supported":                      []string{"openid", "profile"},
		"claims_supported":                      []string{"sub", "name", "preferred_username", "auth_time"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
		"token_endpoint_auth_methods_supported": []string{
			"client_secret_basic", "client_secret_post",
		},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
	})
}

// POST /token (RFC 6749 §4.1.3, RFC 7636 §4.5). A code is spent by its first use, whether or not that use
// succeeds.
func (p *Provider) answerToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil || hasRepeated(r.PostForm) {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"the form is malformed, too large, or repeats a parameter")
		return
	}
	if !p.authenticate(w, r) {
		return
	}
	if r.PostForm.Get("grant_type") != "authorization_code" {
		refuse(w, http.StatusBadRequest, "unsupported_grant_type", "only authorization_code")
		return
	}
	g, ok := p.codes.take(r.PostForm.Get("code"))
	switch {
	case !ok:
		refuse(w, http.StatusBadRequest, "invalid_grant", "the code is unknown, used or expired")
	case g.broken:
		refuse(w, http.StatusInternalServerError, "server_error",
			"the token error that was asked for on the sign-in form")
	case r.PostForm.Get("redirect_uri") != g.request.redirectURI:
		refuse(w, http.StatusBadRequest, "invalid_grant",
			"redirect_uri is not the one of the authorization request")
	case !provesChallenge(r.PostForm.Get("code_verifier"), g.request.challenge):
		refuse(w, http.StatusBadRequest, "invalid_grant",
			"code_verifier does not belong to the code_challenge")
	default:
		p.issue(w, g)
	}
}

func hasRepeated(form url.Values) bool {
	for _, values := range form {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

// authenticate checks the client's secret from the Authorization header or from the body, not from both (RFC
// 6749 §2.3).
func (p *Provider) authenticate(w http.ResponseWriter, r *http.Request) bool {
	id, secret, basic := r.BasicAuth()
	inBody := r.PostForm.Has("client_secret")
	if basic && inBody {
		refuse(w, http.StatusBadRequest, "invalid_request", "two ways of client authentication at once")
		return false
	}
	if basic { // the two parts are form-encoded inside Basic (RFC 6749 §2.3.1)
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	if same(id, p.cfg.ClientID) && same(secret, p.cfg.ClientSecret) {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="dev network"`)
	refuse(w, http.StatusUnauthorized, "invalid_client", "client_id or client_secret is wrong")
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func provesChallenge(verifier, challenge string) bool {
	sum := sha256.Sum256([]byte(verifier))
	return len(verifier) >= 43 && len(verifier) <= 128 &&
		same(base64.RawURLEncoding.EncodeToString(sum[:]), challenge)
}

// issue answers with an access token and an ID token (OpenID Connect Core 1.0 §3.1.3.3).
func (p *Provider) issue(w http.ResponseWriter, g grant) {
	access, now := p.tokens.put(g.subject), p.cfg.Now()
	hash := sha256.Sum256([]byte(access))
	claims := userClaims(g.subject)
	claims["iss"], claims["aud"] = p.Issuer(), p.cfg.ClientID
	claims["iat"], claims["exp"] = now.Unix(), now.Add(tokenLife).Unix()
	claims["at_hash"] = base64.RawURLEncoding.EncodeToString(hash[:len(hash)/2])
	if g.request.nonce != "" {
		claims["nonce"] = g.request.nonce
	}
	if g.request.maxAge != "" { // required then (OpenID Connect Core 1.0 §2)
		claims["auth_time"] = g.at.Add(-p.cfg.SignedInAgo).Unix()
	}
	id, err := p.sign(claims)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "server_error", "the ID token could not be signed")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()),
		"id_token": id,
	})
}

// userClaims vouches for an e-mail address where the user signed in as one.
func userClaims(subject string) map[string]any {
	claims := map[string]any{"sub": subject, "name": subject, "preferred_username": subject}
	if strings.Contains(subject, "@") {
		claims["email"], claims["email_verified"] = subject, true
	}
	return claims
}

func (p *Provider) sign(claims map[string]any) (string, error) {
	b, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	jws, err := p.signer.Sign(b)
	if err != nil {
		return "", err
	}
	return jws.CompactSerialize()
}

// GET /userinfo (OpenID Connect Core 1.0 §5.3, RFC 6750 §2.1).
func (p *Provider) answerUserInfo(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	subject, known := p.tokens.get(token)
	if !ok || !known {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		refuse(w, http.StatusUnauthorized, "invalid_token", "the access token is missing, unknown or expired")
		return
	}
	writeJSON(w, http.StatusOK, userClaims(subject))
}

// refuse answers with an OAuth error (RFC 6749 §5.2).
func refuse(w http.ResponseWriter, status int, code, description string) {
	writeJSON(w, status, map[string]string{"error": code, "error_description": description})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "not encodable", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have left
}
