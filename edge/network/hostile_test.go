package network_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// failure is one way in which a provider, or something in between, misbehaves.
type failure struct {
	prepare      func(*testing.T, *standIn)
	edit         func(*standIn) func(*netsettings.Settings, *network.Options)
	ret          func(*standIn, *network.Return)
	stage, class string
	posts        int32
}

func TestRedeemRefusesHostileProviders(t *testing.T) {
	groups := []map[string]failure{
		returnFailures(), idTokenFailures(), tokenFailures(), userInfoFailures(), metadataFailures(),
	}
	for _, group := range groups {
		for name, c := range group {
			t.Run(name, func(t *testing.T) {
				s := newStandIn(t)
				if c.prepare != nil {
					c.prepare(t, s)
				}
				var edits []func(*netsettings.Settings, *network.Options)
				if c.edit != nil {
					edits = append(edits, c.edit(s))
				}
				ret := s.good()
				if c.ret != nil {
					c.ret(s, &ret)
				}
				got, err := s.network(t, edits...).Redeem(t.Context(), s.attempt, ret)
				var tr *network.Error
				if !errors.As(err, &tr) {
					t.Fatalf("redeem = %+v, %v; want trouble", got, err)
				}
				if tr.Stage != c.stage || tr.Class != c.class {
					t.Errorf("trouble = %v; want %s: %s", tr, c.stage, c.class)
				}
				if posts := s.codePosts.Load(); posts != c.posts {
					t.Errorf("code posted %d times, want %d", posts, c.posts)
				}
				s.checkQuiet(t, err)
			})
		}
	}
}

func returnFailures() map[string]failure {
	requireIssuer := func(_ *testing.T, s *standIn) {
		s.metadata = func(m map[string]any) { m["authorization_response_iss_parameter_supported"] = true }
	}
	mixedUp := func(_ *standIn, r *network.Return) { r.Issuer = "https://attacker.example.com" }
	return map[string]failure{
		"return: issuer of another provider": {ret: mixedUp, stage: "authorization", class: "issuer"},
		"return: decline of another provider": {
			ret: func(s *standIn, r *network.Return) {
				mixedUp(s, r)
				r.Code, r.Error = "", "access_denied"
			},
			stage: "authorization", class: "issuer",
		},
		"return: promised issuer is missing": {
			prepare: requireIssuer, stage: "authorization", class: "issuer",
		},
		"return: oauth2 with a stated issuer": {
			edit: func(s *standIn) func(*netsettings.Settings, *network.Options) {
				return func(set *netsettings.Settings, o *network.Options) {
					asOAuth2(s)(set, o)
					set.Issuer = s.URL
				}
			},
			ret: mixedUp, stage: "authorization", class: "issuer",
		},
		"return: another attempt's state": {
			ret:   func(_ *standIn, r *network.Return) { r.State = network.NewAttempt().State },
			stage: "authorization", class: "state",
		},
		"return: no state": {
			ret: func(_ *standIn, r *network.Return) { r.State = "" }, stage: "authorization", class: "state",
		},
		"return: attempt without nonce": {
			prepare: func(_ *testing.T, s *standIn) { s.attempt.Nonce = "" },
			stage:   "authorization", class: "state",
		},
		"return: provider error": {
			ret:   func(_ *standIn, r *network.Return) { r.Code, r.Error = "", "server_error" },
			stage: "authorization", class: "refused",
		},
		"return: unknown error": {
			ret:   func(_ *standIn, r *network.Return) { r.Code, r.Error = "", plantedSecret },
			stage: "authorization", class: "refused",
		},
		"return: neither": {
			ret: func(_ *standIn, r *network.Return) { r.Code = "" }, stage: "authorization",
			class: "malformed",
		},
	}
}

func tokenFailures() map[string]failure {
	out := map[string]failure{}
	token := func(name, class string, h http.HandlerFunc) {
		out["token: "+name] = failure{
			prepare: func(_ *testing.T, s *standIn) { s.token = h }, stage: "token", class: class, posts: 1,
		}
	}
	oauthError := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{
				"error": code, "error_description": plantedSecret,
			})
		}
	}
	token("500", "status", answerStatus(500))
	token("500 with an error code", "status", oauthError(500, "server_error"))
	token("invalid_grant", "refused", oauthError(400, "invalid_grant"))
	// would be tried in the other style by auto-detect
	token("invalid_client", "refused", oauthError(401, "invalid_client"))
	token("error with status 200", "refused", oauthError(200, "invalid_grant"))
	token("unknown error", "refused", oauthError(400, plantedSecret))
	token("huge", "too_large", answerHuge)
	token("garbage", "malformed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `<html>`+plantedToken)
	})
	token("empty object", "malformed", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]string{})
	})
	for status, code := range map[string]int{"302": 302, "307": 307, "308": 308} {
		token("redirect "+status, "redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?code="+plantedCode, code)
		})
	}
	token("connection closed without an answer", "reset", func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})
	token("connection closed within the answer", "reset", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"access_token":`)
		panic(http.ErrAbortHandler)
	})
	slow := func(before func(http.ResponseWriter)) failure {
		return failure{
			prepare: func(_ *testing.T, s *standIn) {
				s.token = func(w http.ResponseWriter, r *http.Request) {
					before(w)
					<-r.Context().Done() // until the client gives up
				}
			},
			edit: func(*standIn) func(*netsettings.Settings, *network.Options) {
				return within(150 * time.Millisecond)
			},
			stage: "token", class: "timeout", posts: 1,
		}
	}
	out["token: slow"] = slow(func(http.ResponseWriter) {})
	out["token: slow within the answer"] = slow(func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"access_token":`)
		_ = http.NewResponseController(w).Flush()
	})
	out["token: another type"] = failure{
		edit: asOAuth2,
		prepare: func(_ *testing.T, s *standIn) {
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				answerJSON(w, map[string]string{"access_token": plantedToken, "token_type": "mac"})
			}
		},
		stage: "token", class: "malformed", posts: 1,
	}
	return out
}

func userInfoFailures() map[string]failure {
	out := map[string]failure{}
	userInfo := func(name, class, body string, edits ...func(*netsettings.Settings, *network.Options)) {
		out["user info: "+name] = failure{
			edit: func(s *standIn) func(*netsettings.Settings, *network.Options) {
				return func(set *netsettings.Settings, o *network.Options) {
					asOAuth2(s)(set, o)
					for _, e := range edits {
						e(set, o)
					}
				}
			},
			prepare: func(_ *testing.T, s *standIn) {
				s.userInfo = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
			},
			stage: "user_info", class: class, posts: 1,
		}
	}
	userInfo("no subject", "subject", `{"id":"1"}`)
	userInfo("empty subject", "subject", `{"sub":""}`)
	userInfo("null subject", "subject", `{"sub":null}`)
	userInfo("object as subject", "subject", `{"sub":{}}`)
	userInfo("control character in the subject", "subject", `{"sub":"u-7\u0000"}`)
	userInfo("invisible character in the subject", "subject", `{"sub":"u-\u200b7"}`)
	userInfo("fraction as subject", "subject", `{"sub":1.5}`)
	userInfo("exponent as subject", "subject", `{"sub":1e3}`)
	userInfo("repeated subject", "malformed", `{"sub":"1","sub":"2"}`)
	userInfo("array", "malformed", `[]`)
	userInfo("null", "malformed", `null`)
	userInfo("garbage", "malformed", `<html>`)
	userInfo("path beyond the array", "subject", `{"data":[]}`, withClaim("data.0.id"))
	userInfo("path through text", "subject", `{"data":"x"}`, withClaim("data.0.id"))

	handler := func(name, class string, h http.HandlerFunc) {
		out["user info: "+name] = failure{
			edit: asOAuth2, prepare: func(_ *testing.T, s *standIn) { s.userInfo = h }, stage: "user_info",
			class: class, posts: 1,
		}
	}
	handler("401", "status", answerStatus(401))
	handler("huge", "too_large", answerHuge)
	handler("redirect", "redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/x", http.StatusFound)
	})
	out["user info: another subject than the ID token"] = failure{
		edit: func(*standIn) func(*netsettings.Settings, *network.Options) { return withClaim("data.0.id") },
		prepare: func(_ *testing.T, s *standIn) {
			s.userInfo = func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"sub":"someone else","data":[{"id":42}]}`)
			}
		},
		stage: "user_info", class: "subject", posts: 1,
	}
	out["user info: set by the operator, another subject"] = failure{
		edit: func(s *standIn) func(*netsettings.Settings, *network.Options) {
			return func(set *netsettings.Settings, _ *network.Options) {
				set.UserInfoEndpoint = s.URL + "/userinfo"
			}
		},
		prepare: func(_ *testing.T, s *standIn) {
			s.userInfo = func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"sub":"someone else"}`)
			}
		},
		stage: "user_info", class: "subject", posts: 1,
	}
	return out
}

func metadataFailures() map[string]failure {
	out := map[string]failure{}
	set := func(name, class, member string, v any) {
		out["metadata: "+name] = failure{
			prepare: func(_ *testing.T, s *standIn) { s.metadata = func(m map[string]any) { m[member] = v } },
			stage:   "discovery", class: class,
		}
	}
	set("another issuer", "issuer", "issuer", "https://attacker.example.com")
	set("issuer with a slash more", "issuer", "issuer", "https://127.0.0.1/")
	set("plain http", "malformed", "token_endpoint", "http://accounts.example.com/token")
	set("plain http to this machine", "malformed", "token_endpoint", "http://127.0.0.1:4222/token")
	set("no token endpoint", "malformed", "token_endpoint", "")
	set("no keys", "malformed", "jwks_uri", "")
	set("symmetric algorithms alone", "signature", "id_token_signing_alg_values_supported", []string{
		"HS256", "none",
	})
	handler := func(name, class string, h http.HandlerFunc) {
		out["metadata: "+name] = failure{
			prepare: func(_ *testing.T, s *standIn) { s.discover = h }, stage: "discovery", class: class,
		}
	}
	handler("404", "status", answerStatus(404))
	handler("huge", "too_large", answerHuge)
	handler("garbage", "malformed", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	})
	handler("redirect", "redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/x", http.StatusFound)
	})
	out["metadata: unknown certificate authority"] = failure{
		edit: func(*standIn) func(*netsettings.Settings, *network.Options) {
			return func(_ *netsettings.Settings, o *network.Options) { o.RootCAs = x509.NewCertPool() }
		},
		stage: "discovery", class: "tls",
	}
	out["metadata: provider is down"] = failure{
		prepare: func(_ *testing.T, s *standIn) { s.Close() }, stage: "discovery", class: "connect",
	}
	return out
}

func answerStatus(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, plantedToken, code) }
}

// answerHuge never ends by itself, so the test ends only when the client stops reading.
func answerHuge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for block := []byte(strings.Repeat(" ", 32<<10)); ; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// wantFailure fails unless the error is that failure, or none if the stage is empty.
func wantFailure(t *testing.T, err error, stage, class string) {
	t.Helper()
	var tr *network.Error
	switch {
	case stage == "" && err != nil:
		t.Fatal(err)
	case stage != "" && (!errors.As(err, &tr) || tr.Stage != stage || tr.Class != class):
		t.Fatalf("err = %v, want %s: %s", err, stage, class)
	}
}
