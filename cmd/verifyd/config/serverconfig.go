package config

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// Service is a service on another machine, and the token to manage it.
type Service struct {
	URL, Token string
	Roots      *x509.CertPool // nil: the system's
}

// Service checks the settings of a service on another machine, if one is named.
func (s ServerSettings) Service(f *Faults) Service {
	c := Service{URL: s.Server, Token: s.Token, Roots: Roots(f, "server-ca-file", s.ServerCAFile)}
	switch {
	case s.Token != "" && s.TokenFile != "":
		f.Add("token", "set together with VERIFYD_TOKEN_FILE", "use one of them")
	case s.TokenFile != "":
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			f.Add("token-file", err.Error(), "name the file that holds the operator token")
		} else if c.Token = strings.TrimSpace(string(text)); c.Token == "" {
			f.Add("token-file", fmt.Sprintf("%q is empty", s.TokenFile), "write the operator token into it")
		}
	case s.Token == "":
		f.Add("token", "missing", "create one on a machine of the service, with verifyd operator token "+
			"create, and set VERIFYD_TOKEN or VERIFYD_TOKEN_FILE")
	}
	return c
}
