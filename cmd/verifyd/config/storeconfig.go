package config

import (
	"crypto/x509"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// Store is where the data is.
type Store struct {
	DataDir    string
	NATSURL    string
	NATSCreds  string
	NATSRoots  *x509.CertPool
	Sync       embedded.SyncMode
	StoreBytes int64
	Topology   topology.Options
	Key        *secretbox.Key // nil: the file in the data directory
	KeyFile    string

	MachineClock func() time.Time // set by tests; nil: time.Now
}

// Config checks the settings of the store.
func (s StoreSettings) Config(f *Faults) Store {
	c := Store{
		DataDir: s.DataDir, NATSURL: s.NATSURL, NATSCreds: s.NATSCreds, Sync: embedded.SyncMode(s.Sync),
		KeyFile:   s.SecretKeyFile,
		NATSRoots: Roots(f, "nats-ca-file", s.NATSCAFile),
		Topology: topology.Options{
			Replicas: s.Replicas, KeepResults: s.KeepResults, Embedded: s.NATSURL == "",
		},
	}
	if c.Sync != embedded.SyncAlways && c.Sync != embedded.SyncInterval {
		f.Add("sync", fmt.Sprintf("%q is not a mode", s.Sync),
			"use always, or interval if losing the last two minutes in a power cut is acceptable")
	}
	var err error
	if c.StoreBytes, err = ParseBytes(s.StoreLimit); err != nil {
		f.Add("store-limit", err.Error(), "for example 8GiB")
	}
	if s.KeepResults < RetentionSpare || s.KeepResults > 90*24*time.Hour {
		f.outOfRange("keep-results", s.KeepResults, "use "+retentionSpare+" to 2160h, for example 72h")
	}
	s.replicas(&c, f)
	s.secretKey(&c, f)
	s.external(c, f)
	return c
}

func (s StoreSettings) replicas(c *Store, f *Faults) {
	if s.Replicas == 0 {
		c.Topology.Replicas = 1
		if s.NATSURL != "" {
			c.Topology.Replicas = 3
		}
	}
	if r := c.Topology.Replicas; r < 1 || r > 5 || r%2 == 0 {
		f.Add("replicas", fmt.Sprintf("%d is not a number of copies that can hold a majority", r),
			"use 1, 3 or 5")
	}
	if s.NATSURL == "" && c.Topology.Replicas != 1 {
		f.Add("replicas", "the embedded store keeps one copy",
			"leave it out, or set VERIFYD_NATS_URL to a cluster")
	}
}

// TooManyCopies is the fault of wanting more copies of every stream than the servers can keep.
func TooManyCopies(wanted int, why string) error {
	var f Faults
	f.Add("replicas", fmt.Sprintf("%d copies of every stream are wanted, and these servers cannot keep "+
		"as many: %s", wanted, why),
		"set it to 1 for a single server, or name the servers of a cluster of at least as many in "+
			"VERIFYD_NATS_URL")
	return f.Err()
}

func (s StoreSettings) secretKey(c *Store, f *Faults) {
	if s.SecretKey != "" && s.SecretKeyFile != "" {
		f.Add("secret-key", "set together with VERIFYD_SECRET_KEY_FILE", "use one of them")
	}
	if s.SecretKey != "" {
		k, err := secretbox.ParseKey(s.SecretKey)
		if err != nil {
			f.Add("secret-key", "the value is "+err.Error(), "all processes of one service share it")
			return
		}
		c.Key = &k
	}
	if s.NATSURL != "" && s.SecretKey == "" && s.SecretKeyFile == "" {
		f.Add("secret-key", "not set, but all processes that share an external store need the same key",
			"create one with: openssl rand -base64 32")
	}
}

func (s StoreSettings) external(c Store, f *Faults) {
	for text := range strings.SplitSeq(c.NATSURL, ",") {
		u, err := url.Parse(text)
		if c.NATSURL != "" && (err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "") {
			// The value is not shown: it may hold a password.
			f.Add("nats-url", "it is not a list of nats:// or tls:// URLs",
				"for example tls://nats-1.internal:4222,tls://nats-2.internal:4222")
		}
	}
	if s.NATSCAFile != "" && !strings.Contains(c.NATSURL, "tls://") {
		f.Add("nats-ca-file", "set without a tls:// server in VERIFYD_NATS_URL",
			"write tls:// there, or leave this out")
	}
	if c.NATSCreds != "" {
		if _, err := natsconf.CredentialUser(c.NATSCreds); err != nil {
			f.Add("nats-creds", err.Error(),
				"give the path of a NATS credentials file, or of the seed of a user's nkey")
		}
		if c.NATSURL == "" {
			f.Add("nats-creds", "set without VERIFYD_NATS_URL", "set the URL of the external servers too")
		}
	}
}

// byteUnits in the order in which they are tried: the longest suffix first.
var byteUnits = []struct {
	ending string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

// ParseBytes reads a size such as 8GiB.
func ParseBytes(s string) (int64, error) {
	for _, u := range byteUnits {
		digits, has := strings.CutSuffix(s, u.ending)
		if !has {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/u.bytes {
			return 0, fmt.Errorf("%q is not a whole number and a unit", s)
		}
		if n *= u.bytes; n < storestate.MinStoreBytes {
			return 0, fmt.Errorf("%q is too small to work with; at least %dMiB", s,
				storestate.MinStoreBytes>>20)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%q has no unit (B, KiB, MiB, GiB, TiB)", s)
}
