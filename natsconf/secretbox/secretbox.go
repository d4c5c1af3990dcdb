// Package secretbox encrypts what must never be readable in the store: callback URLs (their queries carry
// integrators' secrets), callback signing secrets, and the flow cookies that browsers carry between the
// sign-in page and the identity network.
//
// The law: a master key of 32 bytes, from which every use derives its own key (HKDF, RFC 5869), so that a box
// sealed for one use never opens for another. If the key was changed, a Ring has the earlier ones too. A box
// is bound to its owner by associated data: a callback URL moved to another session's record does not open.
// AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce.
//
// The operator decides where the master key comes from: VERIFYD_SECRET_KEY or VERIFYD_SECRET_KEY_FILE, or the
// file that LoadOrCreate keeps next to the embedded store. A copy of the store without it holds no usable
// secret.
package secretbox

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"verifyd/natsconf"
	"verifyd/natsconf/storefile"
)

// KeyBytes is the length of the master key.
const KeyBytes = 32

// firstKey begins a box that the first key of a Ring has sealed, or a single key; later keys follow.
const firstKey = 1

// nonceBytes is the nonce length of AES-GCM.
const nonceBytes = 12

// ErrOpen is returned for a box that this key, use and owner did not seal, or that was altered or truncated.
var ErrOpen = errors.New("sealed value does not open: another key, another owner, or altered")

// Key is a master key. The zero value is not usable.
type Key [KeyBytes]byte

// String keeps a key out of logs and error texts.
func (Key) String() string { return "seal.Key(hidden)" }

// GoString keeps a key out of %#v as well.
func (Key) GoString() string { return "seal.Key(hidden)" }

// NewKey returns a random master key.
func NewKey() Key {
	var k Key
	// crypto/rand.Read never fails: the program ends if the system's source is broken.
	_, _ = rand.Read(k[:])
	return k
}

// ParseKey reads a master key in standard or URL-safe base64, with or without padding.
func ParseKey(s string) (Key, error) {
	s = strings.TrimRight(strings.TrimSpace(s), "=")
	raw, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_").Replace(s))
	if err != nil || len(raw) != KeyBytes {
		return Key{}, fmt.Errorf("not %d bytes of base64; make one with: openssl rand -base64 %d", KeyBytes,
			KeyBytes)
	}
	return Key(raw), nil
}

// Encode returns the form that ParseKey reads.
func (k Key) Encode() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Fingerprint names the key where others may read it: nobody finds the key by it.
func (k Key) Fingerprint() string { return k.Hash("fingerprint").Sum("")[:fingerprintLen] }

// fingerprintLen is the length of a fingerprint in base32 characters: 60 bits, enough for an operator's few
// keys.
const fingerprintLen = 12

// Load reads the master key kept in path.
func Load(path string) (Key, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own setting
	if err != nil {
		return Key{}, fmt.Errorf("read the secret key: %w", err)
	}
	k, err := ParseKey(string(b))
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// checkUse is the use of the box that Check seals, checkText what it holds.
const (
	checkUse  = "check"
	checkText = "verifyd master key"
)

// NewCheck returns a value that later shows whether a store was made with this key.
func (k Key) NewCheck() []byte { return k.Box(checkUse).Seal([]byte(checkText), checkText) }

// Checks reports whether NewCheck of this very key made the value.
func (k Key) Checks(check []byte) bool {
	plain, err := k.Box(checkUse).Open(check, checkText)
	return err == nil && string(plain) == checkText
}

// LoadOrCreate is Load, but makes a key with mode 0600 if there is none. The write is synced and renamed into
// place, so that a crash leaves either no key or a whole one. The caller holds the lock on the data
// directory.
func LoadOrCreate(path string) (Key, error) {
	k, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	k = NewKey()
	if err := writeSynced(path, []byte(k.Encode()+"\n")); err != nil {
		return Key{}, fmt.Errorf("write the secret key: %w", err)
	}
	return k, nil
}

// Save writes a key to path with mode 0600, if there is none yet, and syncs it. The error is fs.ErrExist if
// there is another key; the same key is fine.
func Save(path string, k Key) error {
	there, err := Load(path)
	switch {
	case err == nil && there == k:
		return nil
	case err == nil:
		return fmt.Errorf("%s holds another key: %w", path, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := writeSynced(path, []byte(k.Encode()+"\n")); err != nil {
		return fmt.Errorf("write the secret key: %w", err)
	}
	return nil
}

// Replace puts the key that next holds in the place of the old one in path, which stays beside it under a
// name with its fingerprint, for the backups that it has sealed. A crash leaves either of them in path.
func Replace(path string, old Key, next string) (kept string, err error) {
	kept = path + "." + old.Fingerprint()
	if err := Save(kept, old); err != nil {
		return "", err
	}
	if err := renameSynced(next, path); err != nil {
		return "", fmt.Errorf("replace the secret key: %w", err)
	}
	return kept, nil
}

func writeSynced(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return renameSynced(f.Name(), path)
}

func renameSynced(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	// The name must survive a power cut as the bytes do: without the key the store is lost.
	return storefile.SyncFolder(filepath.Dir(to))
}

// Hash makes keyed hashes of one use: equal texts have equal hashes, and nobody without the key can find out
// which text has one, or try texts until one fits. Its methods are safe for concurrent use.
type Hash struct{ key []byte }

// Hash derives the hash for one use, for instance "identity". Uses are constants of the packages that own
// the values.
func (k Key) Hash(use string) *Hash {
	return &Hash{key: k.derive("verifyd/hash/" + use)}
}

func (k Key) derive(info string) []byte {
	derived, err := hkdf.Key(sha256.New, k[:], nil, info, KeyBytes)
	if err != nil {
		panic("seal: " + err.Error()) // only for lengths beyond 255 hashes
	}
	return derived
}

// Sum returns the HMAC-SHA256 (RFC 2104) of a text, in lower-case base32: 52 characters, fit for a subject.
func (h *Hash) Sum(text string) string { return hashEncoding.EncodeToString(h.Bytes([]byte(text))) }

// Bytes is Sum for bytes, without the encoding: 32 of them.
func (h *Hash) Bytes(b []byte) []byte {
	mac := hmac.New(sha256.New, h.key)
	mac.Write(b)
	return mac.Sum(nil)
}

// hashEncoding is that of ids, which is above this package (sessions/base32).
var hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Box seals and opens values of one use. Its methods are safe for concurrent use.
type Box struct {
	aeads []cipher.AEAD // of the keys of a Ring, or of a single one
	seals *atomic.Int32 // which of them seals; nil: there is only one
}

// Box derives the box for one use, for instance "callback-url". Uses are constants of the packages that own
// the values.
func (k Key) Box(use string) *Box { return newBox(k.derive("verifyd/" + use)) }

// OwnBox returns a box under the key itself, for a key that seals only the values of one owner: a caller with
// several uses puts them into the owner. Deriving a key, as Box does, costs several times as much as sealing.
func (k Key) OwnBox() *Box { return newBox(k[:]) }

func newBox(key []byte) *Box {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("seal: " + err.Error()) // only for wrong key lengths
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: " + err.Error()) // only for block sizes other than 16
	}
	return &Box{aeads: []cipher.AEAD{aead}}
}

// Seal encrypts plain for owner, for instance a session id. Two seals of the same value differ.
func (b *Box) Seal(plain []byte, owner string) []byte {
	key := 0
	if b.seals != nil {
		key = int(b.seals.Load())
	}
	out := make([]byte, 1+nonceBytes, 1+nonceBytes+len(plain)+b.aeads[key].Overhead())
	out[0] = byte(firstKey + key)
	_, _ = rand.Read(out[1:])
	return b.aeads[key].Seal(out, out[1:1+nonceBytes], plain, []byte(owner))
}

// Open decrypts a box that Seal made for the same use and owner. The error is ErrOpen, or natsconf.ErrNewer
// for a Ring's box that the key after the process's own has sealed: a process that has that key opens it.
func (b *Box) Open(box []byte, owner string) ([]byte, error) {
	if len(box) < 1+nonceBytes {
		return nil, ErrOpen
	}
	key := int(box[0]) - firstKey
	switch {
	case key == len(b.aeads) && b.seals != nil:
		return nil, fmt.Errorf("a later master key than this process has seals it, or %w", natsconf.ErrNewer)
	case key < 0 || key >= len(b.aeads):
		return nil, ErrOpen
	}
	plain, err := b.aeads[key].Open(nil, box[1:1+nonceBytes], box[1+nonceBytes:], []byte(owner))
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}
