package child

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/julienschmidt/httprouter"

	"verifyd/cmd/verifyd-bench/bench/load"
)

// bareSession serves a whole session without keys, limits, states, checks and a store: the same requests,
// pages of the same length, the code redeemed at the network, and a callback. It uses net/http for all of it.
type bareSession struct {
	base    string
	page    []byte
	network Network
	client  *bareClient
	http    *http.Client

	flows sync.Map // state → bareFlow
	posts sync.WaitGroup
}

// bareFlow is a sign-in in progress.
type bareFlow struct{ token, verifier string }

const bareReturn = "/signin/default/callback"

// ReturnURL returns where the network sends users back to, of a child that is a BareSession.
func (c *Child) ReturnURL() string { return "http://" + c.Address + bareReturn }

func newBareSession(_ context.Context, c Config) (worker, string, error) {
	client, err := makeBareClient(c)
	if err != nil {
		return nil, "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	s := &bareSession{
		base: "http://" + l.Addr().String(), network: c.Network, client: client,
		page: append([]byte(load.VerifiedHeading), bytes.Repeat([]byte{' '}, c.PageBytes)...),
	}
	s.http = &http.Client{Transport: s.client.transport, Timeout: load.AnswerWithin}
	router := httprouter.New()
	router.POST(load.InitPath, answerInit(s.base))
	router.GET("/", s.answerPage)
	router.POST("/signin", s.answerPress)
	router.GET(bareReturn, s.answerReturn)
	server := &http.Server{Handler: router, ReadHeaderTimeout: load.AnswerWithin}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	return listening(func() { _ = server.Close(); wg.Wait(); s.posts.Wait(); s.client.close() }),
		l.Addr().String(), nil
}

func (s *bareSession) answerPage(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Set-Cookie", "browser="+secretText()+"; Path=/; HttpOnly; SameSite=Lax")
	_, _ = w.Write(s.page)
}

func (s *bareSession) answerPress(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	state, f := secretText(), bareFlow{token: r.FormValue("session"), verifier: secretText()}
	s.flows.Store(state, f)
	challenge := sha256.Sum256([]byte(f.verifier))
	w.Header().Set("Set-Cookie", "flow="+secretText()+"; Path=/signin; HttpOnly; SameSite=Lax")
	http.Redirect(w, r, s.network.Issuer+"/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {s.network.ClientID}, "redirect_uri": {s.base + bareReturn},
		"scope": {"openid profile"}, "state": {state}, "nonce": {secretText()},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(challenge[:])},
		"code_challenge_method": {"S256"},
	}.Encode(), http.StatusSeeOther)
}

func (s *bareSession) answerReturn(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	q := r.URL.Query()
	found, _ := s.flows.LoadAndDelete(q.Get("state"))
	f, ok := found.(bareFlow)
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := s.redeem(r.Context(), q.Get("code"), f.verifier); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	s.posts.Go(func() {
		// counted there
		_ = s.client.post(context.WithoutCancel(r.Context()), s.http, load.WebhookID(f.token))
	})
	http.Redirect(w, r, s.base+"/?session="+f.token, http.StatusSeeOther)
}

// redeem exchanges the code, and only checks that there is an ID token.
func (s *bareSession) redeem(ctx context.Context, code, verifier string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.network.Issuer+"/token",
		strings.NewReader(url.Values{
			"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {s.base + bareReturn},
			"code_verifier": {verifier},
		}.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(url.QueryEscape(s.network.ClientID), url.QueryEscape(s.network.ClientSecret))
	answer, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	var tokens struct {
		ID string `json:"id_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&tokens); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	if tokens.ID == "" {
		return fmt.Errorf("the network answered %s", answer.Status)
	}
	return nil
}

// secretText returns 32 random bytes in unpadded base64url.
func secretText() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	return base64.RawURLEncoding.EncodeToString(secret[:])
}
