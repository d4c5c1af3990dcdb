package config

import (
	"errors"
	"os"
	"path/filepath"

	"verifyd/natsconf/secretbox"
)

// SecretFile holds the master key, in the data directory.
const SecretFile = "secret.key"

// ExternalKey returns the master key of an external store, which its processes share by configuration.
func (c Store) ExternalKey() (secretbox.Key, error) {
	if c.Key != nil {
		return *c.Key, nil
	}
	return c.loadKey(c.KeyFile)
}

// EmbeddedKey returns the master key of an embedded store. A new one is created only with a new store: with
// an old store it could open nothing.
func (c Store) EmbeddedKey(fresh bool) (secretbox.Key, error) {
	if c.Key != nil || c.KeyFile != "" {
		return c.ExternalKey()
	}
	path := filepath.Join(c.DataDir, SecretFile)
	if fresh {
		return secretbox.LoadOrCreate(path)
	}
	return c.loadKey(path)
}

func (c Store) loadKey(path string) (secretbox.Key, error) {
	k, err := secretbox.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		var f Faults
		f.Add("secret-key-file", "there is no master key in "+path,
			"put back the key that the store was created with, or set VERIFYD_SECRET_KEY")
		return k, Usage(f.Err())
	}
	return k, err
}
