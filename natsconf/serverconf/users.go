package serverconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nkeys"

	"verifyd/natsconf"
	"verifyd/natsconf/permission"
)

// usersFile, in the folder of the servers, lists the users that each role has had.
const usersFile = "nats/users.json"

// Users are the users of a role. Each is a public nkey.
type Users struct {
	// Names are all that the role has had, the one of its seed last. The answers to a process come below the
	// name that it began with, for as long as it runs; so every user may listen below all of them.
	Names []string `json:"names"`
	// Old are those of before a rotation that are still let in.
	Old []string `json:"old,omitempty"`
}

// Newest returns the user of the role's seed.
func (u Users) Newest() string { return u.Names[len(u.Names)-1] }

// admitted returns the users that are let in.
func (u Users) admitted() []string {
	return append([]string{u.Newest()}, without(u.Old, u.Newest())...)
}

// others returns the names of the role's other users.
func (u Users) others(name string) []string { return without(u.Names, name) }

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// EnsureUsers makes, in a folder, the seed of an nkey for each role that has none, and returns the users of
// all. A repeat changes nothing. The files can be read by their owner alone.
func EnsureUsers(dir string) (map[permission.Role]Users, error) {
	users, err := readUsers(dir)
	if err != nil {
		return nil, err
	}
	for _, role := range permission.Roles() {
		path := SeedFile(dir, role)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if err := makeSeed(path); err != nil {
				return nil, fmt.Errorf("make the credential of the %s: %w", role, err)
			}
		}
		if _, err := os.Stat(path + rotated); err == nil {
			path += rotated // a rotation was interrupted
		}
		name, err := natsconf.CredentialUser(path)
		if err != nil {
			return nil, err
		}
		u := users[role]
		u.Names = append(without(u.Names, name), name)
		users[role] = u
	}
	return users, writeUsers(dir, users)
}

// rotated ends the name of a new seed until Place.
const rotated = ".rotated"

// Rotate makes a new user for each role. The ones before it are let in until Retire. The new seeds replace
// the old ones at Place, when the servers' configuration has their users.
func Rotate(dir string) error {
	users, err := EnsureUsers(dir)
	if err != nil {
		return err
	}
	for role, u := range users {
		u.Old = append(without(u.Old, u.Newest()), u.Newest())
		users[role] = u
	}
	if err := writeUsers(dir, users); err != nil { // before their seeds are gone
		return err
	}
	for _, role := range permission.Roles() {
		if err := makeSeed(SeedFile(dir, role) + rotated); err != nil {
			return fmt.Errorf("make the credential of the %s: %w", role, err)
		}
	}
	_, err = EnsureUsers(dir)
	return err
}

// Place puts the seeds of a rotation in the place of the old ones. A repeat changes nothing.
func Place(dir string) error {
	for _, role := range permission.Roles() {
		path := SeedFile(dir, role)
		if err := os.Rename(path+rotated, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace the credential of the %s: %w", role, err)
		}
	}
	return nil
}

// Retire ends the users of before each rotation. A repeat changes nothing.
func Retire(dir string) error {
	users, err := EnsureUsers(dir)
	if err != nil {
		return err
	}
	for role, u := range users {
		u.Old = nil
		users[role] = u
	}
	return writeUsers(dir, users)
}

// readUsers reads the list; a folder of a build before 0.10.0 has none.
func readUsers(dir string) (map[permission.Role]Users, error) {
	users := map[permission.Role]Users{}
	text, err := os.ReadFile(filepath.Join(dir, usersFile)) //nolint:gosec // the operator's own folder
	if err == nil {
		err = json.Unmarshal(text, &users)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the list of users %s: %w", filepath.Join(dir, usersFile), err)
	}
	return users, nil
}

func writeUsers(dir string, users map[permission.Role]Users) error {
	text, err := json.MarshalIndent(users, "", "  ")
	if err == nil {
		err = Put(filepath.Join(dir, usersFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the list of users: %w", err)
	}
	return nil
}

// makeSeed puts a new seed into a file, in place of any other.
func makeSeed(path string) error {
	key, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	defer key.Wipe()
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	defer clear(seed)
	return Put(path, append(seed, '\n'))
}

// Put replaces a file atomically, and makes its folder. Only its owner can read it.
func Put(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create the folder: %w", err)
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the operator's
	if err == nil {
		_, err = f.Write(content)
		err = errors.Join(err, f.Sync(), f.Close()) // a power cut must not leave an empty file
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
