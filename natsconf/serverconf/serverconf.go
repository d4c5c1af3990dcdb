// Package serverconf writes what servers outside this process must have in their configuration: the account,
// its users and what each may do, and the routes between the servers.
package serverconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"

	"verifyd/natsconf/permission"
)

// Account is the name of the account that holds verifyd's streams in the configuration that this package
// writes.
const Account = "verifyd"

// SeedFile returns the path of a role's seed: each role has a folder of its own, so that a process gets no
// other's.
func SeedFile(dir string, role permission.Role) string {
	return filepath.Join(dir, string(role), "nats.nk")
}

// limitSetting is the account's limit as ServerConfig writes it, and configuredLimit finds it there.
const limitSetting = "{max_store: %d}"

var configuredLimit = regexp.MustCompile(`(?m)^\s*jetstream: \{max_store: (\d+)\}$`)

// StoreLimit returns the storeBytes of what ServerConfig has written; 0 if it has none.
func StoreLimit(config []byte) int64 {
	found := configuredLimit.FindSubmatch(config)
	if found == nil {
		return 0
	}
	limit, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		return 0 // no build writes one that is so large
	}
	return limit
}

// Accounts writes the part of a nats-server configuration that gives verifyd an account, with the users of
// each role and what that role may do. storeBytes is what the account may store, over all servers and copies,
// or 0 for no limit of its own.
func Accounts(users map[permission.Role]Users, storeBytes int64) ([]byte, error) {
	type user struct {
		NKey        string                     `json:"nkey"`
		Permissions map[string]permission.Rule `json:"permissions,omitempty"`
	}
	var b bytes.Buffer
	jetStream := "enabled"
	if storeBytes > 0 {
		jetStream = fmt.Sprintf(limitSetting, storeBytes)
	}
	fmt.Fprintf(&b, "# Made by verifyd prepare, and made anew for each version: include it in the "+
		"configuration of every server.\n"+
		"accounts {\n  %s {\n    jetstream: %s\n    users: [\n", Account, jetStream)
	for _, role := range permission.Roles() {
		for _, key := range users[role].admitted() {
			u := user{NKey: key}
			if p := permission.Of(role, key, users[role].others(key)...); !p.Unlimited {
				u.Permissions = map[string]permission.Rule{"publish": p.Publish, "subscribe": p.Listen}
			}
			fmt.Fprintf(&b, "      # %s\n      ", role)
			text, err := json.MarshalIndent(u, "      ", "  ")
			if err != nil {
				return nil, fmt.Errorf("encode the user of the role %s: %w", role, err)
			}
			b.Write(unescaped(text))
			b.WriteString("\n")
		}
	}
	b.WriteString("    ]\n  }\n}\n")
	return b.Bytes(), nil
}

// unescaped undoes what the encoder does for HTML: the server reads no escapes of that kind.
func unescaped(text []byte) []byte { return bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">")) }

// Routes writes the part of a nats-server configuration that joins servers to a cluster by a password.
// Without pings that are closer than the server's own, one that was cut off silently is let back in only
// after up to a minute: its old connections look alive to the others, which refuse the new ones as
// duplicates.
func Routes(servers []string, password string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by verifyd prepare: include it in the configuration of every server.\n"+
		"cluster {\n  name: %s\n  listen: \"0.0.0.0:6222\"\n  authorization {user: route, password: "+
		"%q, timeout: 2}\n"+
		"  ping_interval: \"2s\"\n  ping_max: 2\n  routes: [\n", Account, password)
	for _, s := range servers {
		fmt.Fprintf(&b, "    %q\n",
			(&url.URL{Scheme: "nats", User: url.UserPassword("route", password),
				Host: net.JoinHostPort(s, "6222")}).String())
	}
	b.WriteString("  ]\n}\n")
	return b.Bytes()
}
