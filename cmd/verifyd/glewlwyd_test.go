//go:build linux

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// What Debian's glewlwyd and glewlwyd-common install, and where.
const (
	glewlwydTables = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3"
	glewlwydPages  = "/usr/share/glewlwyd/webapp"
	// of its pages; Debian has a folder at its path instead
	glewlwydWords = "/etc/glewlwyd/config-2.7.json/config.json"
)

// startGlewlwyd runs Glewlwyd with a database of its own, set up over its administration API.
func startGlewlwyd(t *testing.T, p *realProvider, redirectURIs []string) {
	t.Helper()
	const means = "Glewlwyd: apt-get install glewlwyd dbconfig-sqlite3"
	program, sqlite := prove.Program(t, means, "glewlwyd"),
		prove.Program(t, means, "sqlite3")
	p.issuer = "https://" + p.address + "/api/oidc"
	p.users = [2]realUser{
		{name: "sailor", password: "anchors aweigh", email: "sailor@harbor.example", group: "crew"},
		{name: "stowaway", password: "not on the list", email: "stowaway@harbor.example", group: "cargo"},
	}
	p.pages = []providerPage{
		{name: "login", shows: "#passwordForm", answer: func(who realUser) actions {
			return typed("#username", who.name, "#password", who.password, "#loginbut")
		}},
		{name: "consent", shows: "#grant-email",
			answer: func(realUser) actions { return pressed("#grant-email", ".carousel-item .btn-primary") }},
		{name: "continue", shows: ".card-footer .btn-success:enabled",
			answer: func(realUser) actions { return pressed(".card-footer .btn-success") }},
	}
	p.refusal = []providerPage{p.pages[0], p.pages[2]} // the e-mail address alone can be refused
	tables := must[[]byte](t)(os.ReadFile(glewlwydTables))
	fill := exec.Command(sqlite, p.path("glewlwyd.db"))
	fill.Stdin = bytes.NewReader(tables)
	if out, err := fill.CombinedOutput(); err != nil {
		t.Fatalf("fill the database: %v\n%s", err, out)
	}
	p.glewlwydPages(t)
	p.writePEM(t, "tls.pem", "CERTIFICATE", p.cert.Certificate[0])
	p.writeKey(t, "tls.key", p.cert.PrivateKey)
	p.write(t, "glewlwyd.conf", p.glewlwydConf())
	p.serve(t, "https://"+p.address+"/config",
		exec.Command(program, "--config-file="+p.path("glewlwyd.conf")))
	p.setUpGlewlwyd(t, redirectURIs)
}

// glewlwydPages copies its pages, which are links in part, so that they find their texts.
func (p *realProvider) glewlwydPages(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("cp", "-rL", glewlwydPages, p.path("pages")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(p.path("pages/config.json")); err != nil {
		t.Fatal(err)
	}
	p.write(t, "pages/config.json", must[[]byte](t)(os.ReadFile(glewlwydWords)))
}

func (p *realProvider) glewlwydConf() []byte {
	_, port, _ := strings.Cut(p.address, ":")
	return fmt.Appendf(nil, `
port = %[1]s
bind_address = "127.0.0.1"
external_url = "https://%[2]s"
login_url = "login.html"
api_prefix = "api"
static_files_path = "%[3]s/pages"
static_files_mime_types = (
  { extension = ".html", mime_type = "text/html" }, { extension = ".css", mime_type = "text/css" },
  { extension = ".js", mime_type = "application/javascript" }, { extension = ".json", mime_type = "application/json" }
)
allow_origin = "https://%[2]s"
cookie_secure = 1
cookie_same_site = "lax"
log_mode = "console"
log_level = "INFO"
hash_algorithm = "SHA512"
user_module_path = "/usr/lib/glewlwyd/user"
client_module_path = "/usr/lib/glewlwyd/client"
user_auth_scheme_module_path = "/usr/lib/glewlwyd/scheme"
plugin_module_path = "/usr/lib/glewlwyd/plugin"
use_secure_connection = true
secure_connection_key_file = "%[3]s/tls.key"
secure_connection_pem_file = "%[3]s/tls.pem"
database = { type = "sqlite3", path = "%[3]s/glewlwyd.db" }
`, port, p.address, p.dir)
}

// signingKey makes a key whose coordinates begin with no zero byte. Glewlwyd publishes the others, one in
// 128, without that byte, and so as keys of another length (RFC 7518 §6.2.1.2): no ID token verifies then.
func signingKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	for {
		key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		point := must[[]byte](t)(key.PublicKey.Bytes()) // 4, x, y
		if point[1] != 0 && point[1+32] != 0 {
			return key
		}
	}
}

// setUpGlewlwyd creates what an operator creates there: the OpenID Connect plugin, its scopes, the users and
// the client.
func (p *realProvider) setUpGlewlwyd(t *testing.T, redirectURIs []string) {
	t.Helper()
	key := signingKey(t)
	p.writeKey(t, "sign.key", key)
	p.writePEM(t, "sign.pub", "PUBLIC KEY", must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public())))
	jar := must[*cookiejar.Jar](t)(cookiejar.New(nil))
	admin := *p.client
	admin.Jar = jar
	type object = map[string]any
	do := func(method, path string, body object) {
		t.Helper()
		q := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method,
			"https://"+p.address+"/api/"+path, bytes.NewReader(must[[]byte](t)(json.Marshal(body)))))
		q.Header.Set("Content-Type", "application/json")
		response := must[*http.Response](t)(admin.Do(q))
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s", method, path, response.Status)
		}
	}
	// as the package's database has it
	do(http.MethodPost, "auth/", object{"username": "admin", "password": "password"})
	do(http.MethodPut, "mod/user/database", object{
		"module": "database", "name": "database", "display_name": "Users", "order_rank": 0, "readonly": false,
		"enabled": true,
		"parameters": object{"use-glewlwyd-connection": true, "data-format": object{
			"email_verified": object{"multiple": false, "read": true, "write": true},
			"groups":         object{"multiple": true, "read": true, "write": true},
		}},
	})
	do(http.MethodPut, "mod/user/database/reset", nil)
	do(http.MethodPost, "mod/plugin/", object{
		"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "enabled": true,
		"parameters": object{
			"iss": p.issuer, "oauth-as-iss-id": true, "jwt-type": "ecdsa", "jwt-key-size": "256",
			"jwks-show":             true,
			"key":                   string(must[[]byte](t)(os.ReadFile(p.path("sign.key")))),
			"cert":                  string(must[[]byte](t)(os.ReadFile(p.path("sign.pub")))),
			"access-token-duration": 300, "refresh-token-duration": 300, "code-duration": 60,
			"refresh-token-rolling":  false,
			"auth-type-code-enabled": true, "auth-type-code-revoke-replayed": true,
			"auth-type-id-token-enabled": true,
			"pkce-allowed":               true, "pkce-method-plain-allowed": false, "pkce-required": true,
			"name-claim": "mandatory", "email-claim": "on-demand", "email-claim-scope": []string{"email"},
			"claims": []object{
				{"name": "email_verified", "user-property": "email_verified", "type": "boolean",
					"boolean-value-true": "yes", "boolean-value-false": "no", "mandatory": false,
					"on-demand": false, "scope": []string{"email"}},
				{"name": "groups", "user-property": "groups", "type": "string", "mandatory": true,
					"on-demand": false, "scope": []string{}},
			},
		},
	})
	do(http.MethodPost, "scope/", object{
		"name": "email", "display_name": "E-mail address", "description": "Your e-mail address",
		"password_required": false, "scheme": object{},
	})
	for _, who := range p.users {
		do(http.MethodPost, "user/", object{
			"username": who.name, "name": "The " + who.name, "password": who.password, "email": who.email,
			"email_verified": "yes",
			"groups":         []string{who.group, "harbor"}, "scope": []string{"openid", "email"},
			"enabled": true,
		})
	}
	do(http.MethodPost, "client/", object{
		"client_id": realClient, "name": "Harbor Guild", "confidential": true, "client_secret": realSecret,
		"redirect_uri":       redirectURIs,
		"authorization_type": []string{"code"}, "token_endpoint_auth_method": []string{"client_secret_basic"},
		"scope": []string{}, "enabled": true,
	})
}
