package secrets

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"verifyd/sessions/base32"
)

// The form of an API key (contract §5: a service-specific prefix, an underscore, the key material): "vfy_" or
// "vfytest_", 32 random base62 characters, and 6 base62 characters of CRC-32 over everything before them.
const (
	LivePrefix = "vfy_"
	TestPrefix = "vfytest_"
	// OperatorPrefix begins an operator token, which otherwise has the form of an API key.
	OperatorPrefix = "vfyop_"
	secretLen      = 32 // 190 bits
	checksumLen    = 6  // 62^6 > 2^32
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// ErrMalformedKey is returned for a text that does not have the form of an API key.
var ErrMalformedKey = errors.New("not an API key of this service")

// Digest is the stored form of an API key: its SHA-256. A key has 190 random bits, so that a slow hash would
// add nothing.
type Digest [sha256.Size]byte

const (
	// idBytes of a digest make a key's id.
	idBytes  = 10
	idPrefix = "key_"
)

// Entry is the digest's name in the bucket: a dot follows the part that the id is made of, so that JetStream
// finds an entry by its id.
func (d Digest) Entry() string {
	return hex.EncodeToString(d[:idBytes]) + "." + hex.EncodeToString(d[idBytes:])
}

// EntryV1 is the name that keys of record version 1 have.
func (d Digest) EntryV1() string { return hex.EncodeToString(d[:]) }

// ID is how people and logs name a key.
func (d Digest) ID() string { return idPrefix + base32.Lower.EncodeToString(d[:idBytes]) }

// EntriesOf returns the filter that matches the entry of a key's id.
func EntriesOf(id string) (filter string, ok bool) {
	text, ok := strings.CutPrefix(id, idPrefix)
	b, err := base32.Lower.DecodeString(text)
	if !ok || err != nil || len(b) != idBytes {
		return "", false
	}
	return hex.EncodeToString(b) + ".*", true
}

// ParseEntry reads the name of a key's entry, with the dot of Digest.Entry or, of version 1, without.
func ParseEntry(entry string) (d Digest, err error) {
	b, err := hex.DecodeString(strings.Replace(entry, ".", "", 1))
	copy(d[:], b)
	if err != nil || len(b) != len(d) || entry != d.Entry() && entry != hex.EncodeToString(b) {
		return Digest{}, fmt.Errorf("key entry %q is not a digest", entry)
	}
	return d, nil
}

// NewKey makes a random API key.
func NewKey(test bool) string {
	if test {
		return newSecret(TestPrefix)
	}
	return newSecret(LivePrefix)
}

// NewOperatorToken makes a random operator token.
func NewOperatorToken() string { return newSecret(OperatorPrefix) }

func newSecret(prefix string) string {
	s := prefix + randomBase62(secretLen)
	return s + checksum(s)
}

// ParseKey checks the form of an API key and returns its digest. The error is ErrMalformedKey.
func ParseKey(s string) (d Digest, test bool, err error) {
	prefix := LivePrefix
	if strings.HasPrefix(s, TestPrefix) {
		prefix, test = TestPrefix, true
	}
	d, ok := digestOf(prefix, s)
	if !ok {
		return d, false, ErrMalformedKey
	}
	return d, test, nil
}

// ParseOperatorToken checks the form of an operator token and returns its digest in hexadecimal.
func ParseOperatorToken(s string) (digest string, ok bool) {
	d, ok := digestOf(OperatorPrefix, s)
	return hex.EncodeToString(d[:]), ok
}

// digestOf returns the digest of a secret that has the prefix and the form.
func digestOf(prefix, s string) (d Digest, ok bool) {
	if len(s) != len(prefix)+secretLen+checksumLen || !strings.HasPrefix(s, prefix) {
		return d, false
	}
	body, sum := s[:len(s)-checksumLen], s[len(s)-checksumLen:]
	if strings.Trim(body[len(prefix):], base62) != "" || checksum(body) != sum {
		return d, false
	}
	return sha256.Sum256([]byte(s)), true
}

// checksum distinguishes a mistyped or truncated key from an unknown one, and for secret scanners a key from
// noise.
func checksum(s string) string {
	v := crc32.ChecksumIEEE([]byte(s))
	var out [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		out[i] = base62[v%62]
		v /= 62
	}
	return string(out[:])
}

// randomBase62 draws each character evenly: bytes from 248 up, which would favour the first ones, are thrown
// away.
func randomBase62(n int) string {
	out := make([]byte, 0, n)
	var b [64]byte
	for len(out) < n {
		_, _ = rand.Read(b[:]) // never fails
		for _, v := range b {
			if v < 248 && len(out) < n {
				out = append(out, base62[v%62])
			}
		}
	}
	return string(out)
}
