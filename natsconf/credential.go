package natsconf

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// errNoCredential is what a file is that holds neither form of a credential.
var errNoCredential = errors.New(
	"it holds neither NATS credentials (a JWT and its seed) nor the seed of a user's nkey, which begins with SU")

// credential proves a user to an external server.
type credential struct {
	user   string // the public nkey; the user's inboxes lie below it
	option nats.Option
}

// CheckCredential reports whether a file holds a credential. Its errors never repeat what is in it.
func CheckCredential(path string) error {
	_, err := readCredential(path)
	return err
}

// readCredential reads which user a file stands for. The secret itself is read by the client, anew at each
// connect, so that it can be replaced while the service runs.
func readCredential(path string) (credential, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		return credential{}, fmt.Errorf("read the NATS credential: %w", err)
	}
	defer clear(b)
	key, err := nkeys.ParseDecoratedUserNKey(b)
	if err != nil {
		return credential{}, fmt.Errorf("the NATS credential %s: %w", path, errNoCredential)
	}
	defer key.Wipe()
	public, err := key.PublicKey()
	if err != nil {
		return credential{}, fmt.Errorf("the NATS credential %s: %w", path, errNoCredential)
	}
	if bytes.Contains(b, []byte("BEGIN NATS USER JWT")) {
		return credential{user: public, option: nats.UserCredentials(path)}, nil
	}
	option, err := nats.NkeyOptionFromSeed(path)
	if err != nil {
		return credential{}, fmt.Errorf("the NATS credential %s: %w", path, errNoCredential)
	}
	return credential{user: public, option: option}, nil
}

// userOfURL returns the user name in the first of the servers' URLs. What stands there without a password is
// a token, which is a secret.
func userOfURL(servers string) string {
	first, _, _ := strings.Cut(servers, ",")
	u, err := url.Parse(first)
	if err != nil {
		return ""
	}
	if _, hasPassword := u.User.Password(); !hasPassword {
		return ""
	}
	return u.User.Username()
}

// isToken reports whether a user's name can stand in a subject.
func isToken(user string) bool {
	return user != "" &&
		strings.Trim(user, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}
