//go:build linux

package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// lemonldapPortal is where Debian's liblemonldap-ng-portal-perl keeps its pages.
const lemonldapPortal = "/usr/share/lemonldap-ng/portal"

// startLemonLDAP runs LemonLDAP::NG's portal under Starman, with the users of its demonstration backend:
// their passwords are their names.
func startLemonLDAP(t *testing.T, p *realProvider, redirectURIs []string) {
	t.Helper()
	const means = "LemonLDAP::NG: apt-get install liblemonldap-ng-portal-perl starman " +
		"libgd-securityimage-perl libimage-magick-perl libio-string-perl libstring-random-perl"
	program := prove.Program(t, means, "starman")
	if _, err := os.Stat(lemonldapPortal); err != nil {
		t.Fatalf("this proof needs %s", means)
	}
	// Each of Starman's workers serves one connection, and browsers keep several open: something else
	// terminates TLS, as everywhere.
	p.issuer = serveFront(t, p.cert, p.address) + "/"
	p.users = [2]realUser{
		{name: "dwho", password: "dwho", email: "dwho@badwolf.org", group: "timelords"},
		{name: "rtyler", password: "rtyler", email: "rtyler@badwolf.org", group: "earthlings"},
	}
	p.pages = []providerPage{
		{name: "renewal", shows: "#upgrd",
			answer: func(realUser) actions { return pressed("#upgrd .btn-success") }},
		{name: "login", shows: "#userfield", answer: func(who realUser) actions {
			return typed("#userfield", who.name, "#passwordfield", who.password, ".btn-success")
		}},
		{name: "consent", shows: "form.confirm",
			answer: func(realUser) actions { return pressed("form.confirm .positive") }},
	}
	p.refusal = []providerPage{
		p.pages[1], {
			name: "consent", shows: "form.confirm", answer: func(realUser) actions {
				return pressed("#refuse")
			},
		},
	}
	for _, folder := range []string{"conf", "cache", "sessions/lock", "psessions/lock"} {
		if err := os.MkdirAll(p.path(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.write(t, "conf/lmConf-1.json", must[[]byte](t)(json.Marshal(p.lemonldapConf(t, redirectURIs))))
	p.write(t, "lemonldap-ng.ini", fmt.Appendf(nil, `[all]
logLevel = notice
logger = Lemonldap::NG::Common::Logger::Std
userLogger = Lemonldap::NG::Common::Logger::Std
[configuration]
type = File
dirName = %[1]s/conf
localStorage = Cache::FileCache
localStorageOptions = { 'namespace' => 'conf', 'default_expires_in' => 600, 'directory_umask' => '077', 'cache_root' => '%[1]s/cache', 'cache_depth' => 3 }
[portal]
staticPrefix = /static
templateDir = %[2]s/templates
languages = en
`, p.dir, lemonldapPortal))
	p.write(t, "app.psgi", fmt.Appendf(nil, `use Plack::Builder;
use Lemonldap::NG::Portal::Main;
builder {
  enable 'Static', path => sub { s#^/static/#/# }, root => '%s/htdocs/static';
  enable 'Static', path => sub { s#^/javascript/#/# }, root => '/usr/share/javascript';
  Lemonldap::NG::Portal::Main->run({});
};
`, lemonldapPortal))
	cmd := exec.Command(program, "--listen", p.address, "--workers", "3", "--preload-app", p.path("app.psgi"))
	cmd.Env = append(os.Environ(), "LLNG_DEFAULTCONFFILE="+p.path("lemonldap-ng.ini"))
	p.serve(t, "http://"+p.address+"/.well-known/openid-configuration", cmd)
}

func (p *realProvider) lemonldapConf(t *testing.T, redirectURIs []string) map[string]any {
	t.Helper()
	key := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	private := pem.EncodeToMemory(&pem.Block{
		Type: "PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key)),
	})
	public := pem.EncodeToMemory(&pem.Block{
		Type: "PUBLIC KEY", Bytes: must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public())),
	})
	type object = map[string]any
	files := func(folder string) object {
		return object{
			"Directory": p.path(folder), "LockDirectory": p.path(folder + "/lock"),
			"generateModule": "Lemonldap::NG::Common::Apache::Session::Generate::SHA256",
		}
	}
	return object{
		"cfgNum": 1, "cfgAuthor": "test", "cfgDate": 1, "cfgVersion": "2.16.1", "key": rand.Text(),
		"portal": p.issuer, "domain": "127.0.0.1", "cookieName": "lemonldap", "securedCookie": 1,
		"authentication": "Demo", "userDB": "Same", "passwordDB": "Null", "registerDB": "Null",
		// seconds
		"captcha_register_enabled": 0, "captcha_mail_enabled": 0, "loginHistoryEnabled": 0,
		"portalForceAuthnInterval": 2,
		"demoExportedVars":         object{"cn": "cn", "mail": "mail", "uid": "uid"},
		"exportedVars":             object{},
		"macros":                   object{"_whatToTrace": "$_user", "mailVerified": "1"},
		"whatToTrace":              "_whatToTrace",
		"groups":                   object{},
		"globalStorage":            "Apache::Session::File", "globalStorageOptions": files("sessions"),
		"persistentStorage": "Apache::Session::File", "persistentStorageOptions": files("psessions"),
		"localSessionStorage": "Cache::FileCache", "localSessionStorageOptions": object{
			"namespace": "sessions", "cache_root": p.path("cache"), "cache_depth": 3,
			"default_expires_in": 600, "directory_umask": "077",
		},
		"locationRules": object{"127.0.0.1": object{"default": "accept"}}, "exportedHeaders": object{},
		"applicationList":                 object{},
		"issuerDBOpenIDConnectActivation": 1, "oidcServiceMetaDataIssuer": p.issuer,
		"oidcServiceIgnoreScopeForClaims": 1,
		"oidcServicePrivateKeySig":        string(private), "oidcServicePublicKeySig": string(public),
		"oidcServiceKeyIdSig": "first",
		"oidcRPMetaDataOptions": object{"verifyd": object{
			"oidcRPMetaDataOptionsClientID": realClient, "oidcRPMetaDataOptionsClientSecret": realSecret,
			"oidcRPMetaDataOptionsDisplayName":    "Harbor Guild",
			"oidcRPMetaDataOptionsRedirectUris":   strings.Join(redirectURIs, " "),
			"oidcRPMetaDataOptionsIDTokenSignAlg": "RS256",
			"oidcRPMetaDataOptionsUserIDAttr":     "uid", "oidcRPMetaDataOptionsRequirePKCE": 1,
			"oidcRPMetaDataOptionsBypassConsent": 0,
		}},
		"oidcRPMetaDataExportedVars": object{
			"verifyd": object{
				"name": "cn", "email": "mail", "email_verified": "mailVerified;bool",
				"groups": "groups;string;always",
			},
		},
	}
}
