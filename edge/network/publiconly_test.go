package network_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// elsewhere is a connection to the stand-in with another remote address, as if a name resolved to it.
type elsewhere struct {
	*net.TCPConn

	address net.Addr
}

func (e elsewhere) RemoteAddr() net.Addr { return e.address }

// at resolves hosts to addresses, and connects all of them to the stand-in.
func (w *world) at(hosts map[string]string) network.Options {
	o := w.options()
	o.Dial = func(ctx context.Context, proto, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, proto, w.server.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		host, _, _ := strings.Cut(address, ":")
		return elsewhere{conn.(*net.TCPConn), &net.TCPAddr{IP: net.ParseIP(hosts[host]), Port: 443}}, nil
	}
	return o
}

// Addresses in a public provider's metadata are public, or get no request: neither the code nor a token, nor
// a request for keys, is sent to internal services. If the operator's issuer is an internal service itself,
// it may name others.
func TestDiscoveredAddressesArePublic(t *testing.T) {
	const outside, inside = "93.184.216.34", "10.0.0.5"
	metadata := func(token, keys, info string) string {
		return `{"issuer":"https://gitlab.com","authorization_endpoint":"https://gitlab.com/authorize","token_endpoint":"https://` + token + `/token",
			"jwks_uri":"https://` + keys + `/keys","userinfo_endpoint":"https://` + info + `/userinfo","id_token_signing_alg_values_supported":["ES256"]}`
	}
	const far = "gitlab.example.org" // a host whose address the cases choose
	for name, c := range map[string]struct {
		document     string
		issuer, host string // where the names lead
		named        string // user_info_endpoint of the settings
		stage, class string
	}{
		"all public": {metadata("gitlab.com", far, far), outside, outside, "", "", ""},
		"token inside": {
			metadata(far, "gitlab.com", "gitlab.com"), outside, inside, "", "token", "refused_address",
		},
		"token on this machine": {
			metadata(far, "gitlab.com", "gitlab.com"), outside, "127.0.0.1", "", "token", "refused_address",
		},
		"token at the metadata of IPs": {
			metadata(far, "gitlab.com", "gitlab.com"), outside, "169.254.169.254", "", "token",
			"refused_address",
		},
		"keys inside": {
			metadata("gitlab.com", far, "gitlab.com"), outside, inside, "", "id_token", "refused_address",
		},
		"user info inside": {
			metadata("gitlab.com", "gitlab.com", far), outside, inside, "", "user_info", "refused_address",
		},
		"user info of the settings": {
			metadata("gitlab.com", "gitlab.com", "gitlab.com"), outside, inside,
			"https://" + far + "/userinfo", "", "",
		},
		"an issuer inside": {metadata(far, far, far), inside, "10.0.0.6", "", "", ""},
		"a literal inside": {
			metadata("10.0.0.5", "gitlab.com", "gitlab.com"), outside, outside, "", "discovery", "malformed",
		},
		"a literal here": {
			metadata("gitlab.com", "[::1]", "gitlab.com"), outside, outside, "", "discovery", "malformed",
		},
		"this machine by name": {
			metadata("gitlab.com", "gitlab.com", "localhost"), outside, outside, "", "discovery", "malformed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.oidc("gitlab.com/.well-known/openid-configuration", c.document, `{"sub":"s"}`)
			for _, host := range []string{"gitlab.com", far} {
				w.answers["GET "+host+"/userinfo"] = canned(`{"sub":"s","who":"w"}`)
			}
			n, err := network.New(netsettings.Settings{
				ID: "lab", Name: "Lab", Kind: netsettings.KindOIDC, Issuer: "https://gitlab.com",
				ClientID: "client", ClientSecret: plantedSecret,
				SubjectClaim: "who", UserInfoEndpoint: c.named,
			}, w.at(map[string]string{"gitlab.com": c.issuer, far: c.host}))
			if err != nil {
				t.Fatal(err)
			}
			_, err = n.Redeem(t.Context(), w.attempt, network.Return{
				Code: plantedCode, State: w.attempt.State,
			})
			wantFailure(t, err, c.stage, c.class)
			if c.class == "refused_address" {
				for _, asked := range w.asked {
					if strings.Contains(asked, far) {
						t.Errorf("it was asked: %s", asked)
					}
				}
			}
		})
	}
}
