package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/journal"
	"verifyd/cmd/verifyd/spans"
	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/natsconf"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
	"verifyd/sessions/target"
)

// config is what a Program runs with: every value checked.
type config struct {
	store    storeConfig
	edge     bool // this process runs the edge
	dispatch bool // this process runs the dispatcher

	listen, adminListen string
	baseURL             string // empty: derived from the listening port
	trustedProxies      []netip.Prefix
	networks            []network.Settings
	networkRoots        *x509.CertPool // nil: the system's
	devNetwork          string         // where the dev network listens; empty: none
	devDashboard        bool           // it leads into the dashboard, too
	dashboardAllow      dashboard.Allow
	devForLive          bool // live sessions may use it too
	testKeys            bool // test keys are taken; their sessions use the dev network alone

	callbackRoots       *x509.CertPool // nil: the system's
	callbackPolicy      *target.Policy
	callbackProxy       *callback.Proxy // nil: none
	callbackConnections int
	callbackTimeout     time.Duration
	callbackRetryFor    time.Duration
	defaultPolicy       sessions.Policy

	rate       account.Rate
	failedKeys account.Rate // per address
	quota      int64

	log     zerolog.Logger
	journal *journal.Journal // what log writes to; nil in tests

	traces         *spans.Config // nil: nothing is traced
	traceReceivers bool
	alarms         alarmConfig

	now func() time.Time // tests move it; nil: time.Now
}

// storeConfig is where the data is.
type storeConfig struct {
	dataDir    string
	natsURL    string
	natsCreds  string
	natsRoots  *x509.CertPool
	sync       natsconf.SyncMode
	storeBytes int64
	topology   natsconf.TopologyOptions
	key        *seal.Key // nil: the file in the data directory
	keyFile    string
}

// faults gathers what is wrong with the settings, so that all of it is told at once.
type faults []error

// add names the setting in all its forms, what is wrong with its value, and what would be right.
func (f *faults) add(flag, wrong, right string) {
	variable := "VERIFYD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	*f = append(*f, fmt.Errorf("%s (--%s): %s; %s", variable, flag, wrong, right))
}

func (f *faults) err() error { return errors.Join(*f...) }

// config checks every setting. The error lists all faults.
func (s settings) config(log zerolog.Logger) (config, error) {
	var f faults
	c := config{log: log, store: s.storeSettings.config(&f)}
	s.roles(&c, &f)
	s.edgeConfig(&c, &f)
	s.networkConfig(&c, &f)
	s.callbackConfig(&c, &f)
	s.limitConfig(&c, &f)
	c.alarms = s.alarmSettings.config(&f, c.callbackPolicy)
	c.traces, c.traceReceivers = s.traceSettings.config(&f), s.TraceCallbacks
	if s.KeepResults < s.CallbackRetryFor+time.Hour {
		f.add("keep-results", fmt.Sprintf("%s is less than an hour longer than VERIFYD_CALLBACK_RETRY_FOR (%s): outcomes could be forgotten before they are delivered", s.KeepResults, s.CallbackRetryFor),
			"for example 72h")
	}
	return c, f.err()
}

func (s settings) roles(c *config, f *faults) {
	for role := range strings.SplitSeq(s.Roles, ",") {
		switch strings.TrimSpace(role) {
		case "edge":
			c.edge = true
		case "dispatcher":
			c.dispatch = true
		default:
			f.add("roles", fmt.Sprintf("%q is not a role", role), "use edge, dispatcher or edge,dispatcher")
		}
	}
}

func (s storeSettings) config(f *faults) storeConfig {
	c := storeConfig{
		dataDir: s.DataDir, natsURL: s.NATSURL, natsCreds: s.NATSCreds, sync: natsconf.SyncMode(s.Sync), keyFile: s.SecretKeyFile,
		natsRoots: roots(f, "nats-ca-file", s.NATSCAFile),
		topology:  natsconf.TopologyOptions{Replicas: s.Replicas, KeepResults: s.KeepResults, Embedded: s.NATSURL == ""},
	}
	if c.sync != natsconf.SyncAlways && c.sync != natsconf.SyncInterval {
		f.add("sync", fmt.Sprintf("%q is not a mode", s.Sync), "use always, or interval where losing the last two minutes in a power cut is acceptable")
	}
	var err error
	if c.storeBytes, err = parseBytes(s.StoreLimit); err != nil {
		f.add("store-limit", err.Error(), "for example 8GiB")
	}
	if s.KeepResults < time.Hour || s.KeepResults > 90*24*time.Hour {
		f.add("keep-results", fmt.Sprintf("%s is out of range", s.KeepResults), "use 1h to 2160h, for example 72h")
	}
	s.replicas(&c, f)
	s.secretKey(&c, f)
	s.external(c, f)
	return c
}

func (s storeSettings) replicas(c *storeConfig, f *faults) {
	if s.Replicas == 0 {
		c.topology.Replicas = 1
		if s.NATSURL != "" {
			c.topology.Replicas = 3
		}
	}
	if r := c.topology.Replicas; r < 1 || r > 5 || r%2 == 0 {
		f.add("replicas", fmt.Sprintf("%d is not a number of copies that can hold a majority", r), "use 1, 3 or 5")
	}
	if s.NATSURL == "" && c.topology.Replicas != 1 {
		f.add("replicas", "the embedded store keeps one copy", "leave it out, or set VERIFYD_NATS_URL to a cluster")
	}
}

func (s storeSettings) secretKey(c *storeConfig, f *faults) {
	if s.SecretKey != "" && s.SecretKeyFile != "" {
		f.add("secret-key", "set together with VERIFYD_SECRET_KEY_FILE", "use one of them")
	}
	if s.SecretKey != "" {
		k, err := seal.ParseKey(s.SecretKey)
		if err != nil {
			f.add("secret-key", "the value is "+err.Error(), "all processes of one service share it")
			return
		}
		c.key = &k
	}
	if s.NATSURL != "" && s.SecretKey == "" && s.SecretKeyFile == "" {
		f.add("secret-key", "not set, and an external store is shared by processes that need the same key", "make one with: openssl rand -base64 32")
	}
}

func (s storeSettings) external(c storeConfig, f *faults) {
	for text := range strings.SplitSeq(c.natsURL, ",") {
		u, err := url.Parse(text)
		if c.natsURL != "" && (err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "") {
			// The value is not shown: it may hold a password.
			f.add("nats-url", "it is not a list of nats:// or tls:// URLs", "for example tls://nats-1.internal:4222,tls://nats-2.internal:4222")
		}
	}
	if s.NATSCAFile != "" && !strings.Contains(c.natsURL, "tls://") {
		f.add("nats-ca-file", "set without a tls:// server in VERIFYD_NATS_URL", "write tls:// there, or leave this out")
	}
	if c.natsCreds != "" {
		if err := natsconf.CheckCredential(c.natsCreds); err != nil {
			f.add("nats-creds", err.Error(), "give the path of a NATS credentials file, or of the seed of a user's nkey")
		}
		if c.natsURL == "" {
			f.add("nats-creds", "set without VERIFYD_NATS_URL", "set the URL of the external servers too")
		}
	}
}

func (s settings) edgeConfig(c *config, f *faults) {
	c.listen = address(f, "listen", s.Listen)
	if s.AdminListen != "" {
		c.adminListen = address(f, "admin-listen", s.AdminListen)
	}
	c.trustedProxies = prefixes(f, "trusted-proxies", s.TrustedProxies)
	if s.BaseURL != "" {
		base, _, err := edge.ParseBaseURL(s.BaseURL)
		if err != nil {
			f.add("base-url", fmt.Sprintf("%q is %v", s.BaseURL, err), "for example https://verify.example.com")
		}
		c.baseURL = base
	}
}

func (s settings) networkConfig(c *config, f *faults) {
	c.testKeys, c.devForLive = s.TestKeys, s.DevNetwork
	c.networkRoots = roots(f, "network-ca-file", s.NetworkCAFile)
	if c.testKeys || c.devForLive || s.DevNetworkDashboard {
		c.devNetwork, c.devDashboard = s.DevNetworkListen, s.DevNetworkDashboard
	}
	var err error
	if c.dashboardAllow, err = dashboard.ParseAllow(s.DashboardAllow); err != nil {
		f.add("dashboard-allow", err.Error(), "use open, or a list such as example:12345,@example.org")
	}
	if s.NetworksFile != "" {
		c.networks = append(c.networks, networksFile(f, s.NetworksFile)...)
	}
	if s.NetworkIssuer != "" || s.NetworkKind != "" {
		n := network.Settings{ID: "default", Name: s.NetworkName, Kind: s.NetworkKind, Issuer: s.NetworkIssuer, ClientID: s.NetworkClientID, ClientSecret: s.NetworkClientSecret, Dashboard: s.NetworkDashboard}
		if n.Kind == "" {
			n.Kind = network.KindOIDC
		}
		if _, err := network.New(n, network.Options{BaseURL: "https://verify.example.com"}); err != nil {
			f.add("network-issuer", err.Error(), "one network takes VERIFYD_NETWORK_ISSUER or _KIND, _NAME, _CLIENT_ID and _CLIENT_SECRET")
		}
		c.networks = append(c.networks, n)
	}
	if s.NetworkIssuer == "" && s.NetworkKind == "" && (s.NetworkDashboard || s.NetworkClientID != "" || s.NetworkClientSecret != "" || s.NetworkName != "") {
		f.add("network-issuer", "not set, but other settings of that network are", "set it to the network's issuer, for example https://accounts.example.com, or set VERIFYD_NETWORK_KIND")
	}
	if c.edge && len(c.networks) == 0 && !s.DevNetwork && s.NetworksFile == "" {
		f.add("network-issuer", "no identity network is configured, so nobody could sign in",
			"set it to an OpenID Connect issuer such as https://accounts.example.com, or set VERIFYD_NETWORKS_FILE; to try things out: --dev-network")
	}
}

func networksFile(f *faults, path string) []network.Settings {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		f.add("networks-file", "the file cannot be read: "+plain(err), "give the path of a YAML list of networks")
		return nil
	}
	networks, err := network.ParseFile(b)
	if err != nil {
		f.add("networks-file", err.Error(), "the README shows a whole file")
	}
	return networks
}

func (s settings) callbackConfig(c *config, f *faults) {
	c.callbackRoots = roots(f, "callback-ca-file", s.CallbackCAFile)
	var ports []uint16
	if s.CallbackAllowPorts != "*" {
		for text := range strings.SplitSeq(s.CallbackAllowPorts, ",") {
			port, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
			if err != nil || port == 0 {
				f.add("callback-allow-ports", fmt.Sprintf("%q is not a port", text), "use * or a list such as 443,8443")
			}
			ports = append(ports, uint16(port))
		}
	}
	c.callbackPolicy = target.NewPolicy(prefixes(f, "callback-allow-cidrs", s.CallbackAllowCIDRs), ports)
	if s.CallbackProxy != "" {
		var err error
		if c.callbackProxy, err = callback.ParseProxy(s.CallbackProxy); err != nil {
			f.add("callback-proxy", err.Error(), "for example http://proxy.internal:3128 or https://user:password@proxy.internal:3129, with special characters of the password percent-encoded")
		}
	}
	c.defaultPolicy = policy(f, "callback-policy", s.CallbackPolicy)
	if c.callbackConnections = s.CallbackConnections; c.callbackConnections < 1 || c.callbackConnections > dispatcher.ConnectionsMost {
		f.add("callback-connections", fmt.Sprintf("%d is out of range", s.CallbackConnections), fmt.Sprintf("use 1 to %d, for example 64", dispatcher.ConnectionsMost))
	}
	c.callbackTimeout, c.callbackRetryFor = s.CallbackTimeout, s.CallbackRetryFor
	if c.callbackTimeout < time.Second || c.callbackTimeout > time.Minute {
		f.add("callback-timeout", fmt.Sprintf("%s is out of range", s.CallbackTimeout), "use 1s to 1m, for example 10s")
	}
	if c.callbackRetryFor < 0 || c.callbackRetryFor > 24*time.Hour {
		f.add("callback-retry-for", fmt.Sprintf("%s is out of range", s.CallbackRetryFor), "use 0s to 24h, for example 15m")
	}
	c.callbackRetryFor = max(c.callbackRetryFor, time.Nanosecond) // 0s is one try; the dispatcher's zero is its default
}

func (s settings) limitConfig(c *config, f *faults) {
	rate, err := limit.ParseRate(s.RateLimit)
	if err != nil {
		f.add("rate-limit", err.Error(), "for example 20/s")
		return
	}
	rate.Burst = s.RateBurst
	if err := limit.Valid(rate); err != nil {
		f.add("rate-burst", err.Error(), "for example 40")
	}
	if c.failedKeys, err = limit.ParseRate(s.FailedKeyLimit); err != nil {
		f.add("failed-key-limit", err.Error(), "for example 10/m")
	} else if c.failedKeys.Burst *= 2; limit.Valid(c.failedKeys) != nil {
		f.add("failed-key-limit", fmt.Sprintf("%s is too much: its burst is twice as many", s.FailedKeyLimit), "for example 10/m")
	}
	c.rate, c.quota = rate, s.MonthlyQuota
	if c.quota < 1 {
		f.add("monthly-quota", fmt.Sprintf("%d allows no session", s.MonthlyQuota), "for example 100000")
	}
}

func policy(f *faults, flag, s string) sessions.Policy {
	p := sessions.Policy(s)
	if p != sessions.PolicyOnce && p != sessions.PolicyAtLeastOnce {
		f.add(flag, fmt.Sprintf("%q is not a policy", s), "use once or at-least-once")
	}
	return p
}

func address(f *faults, flag, s string) string {
	host, port, err := net.SplitHostPort(s)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n > 65535 || strings.ContainsAny(host, "/ ") {
		f.add(flag, fmt.Sprintf("%q is not host:port", s), "for example 127.0.0.1:8080, or :8080 for every interface")
	}
	return s
}

func prefixes(f *faults, flag string, texts []string) []netip.Prefix {
	var ps []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			f.add(flag, fmt.Sprintf("%q is not a CIDR", text), "for example 10.0.0.0/8 or 2001:db8::/32")
			continue
		}
		ps = append(ps, p.Masked())
	}
	return ps
}

// roots gives the system's certificate authorities and those of a file; nil when no file is named.
func roots(f *faults, flag, path string) *x509.CertPool {
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		f.add(flag, "the file cannot be read: "+plain(err), "give the path of a PEM file")
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without authorities of its own
	}
	if !pool.AppendCertsFromPEM(pem) {
		f.add(flag, fmt.Sprintf("%s holds no certificate", path), "a PEM file begins with -----BEGIN CERTIFICATE-----")
	}
	return pool
}

// byteUnits in the order they are tried: the longest ending first.
var byteUnits = []struct {
	ending string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

func parseBytes(s string) (int64, error) {
	i := slices.IndexFunc(byteUnits, func(u struct {
		ending string
		bytes  int64
	},
	) bool {
		return strings.HasSuffix(s, u.ending)
	})
	if i < 0 {
		return 0, fmt.Errorf("%q has no unit (B, KiB, MiB, GiB, TiB)", s)
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, byteUnits[i].ending), 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/byteUnits[i].bytes {
		return 0, fmt.Errorf("%q is not a whole number and a unit", s)
	}
	if n *= byteUnits[i].bytes; n < natsconf.LeastStoreBytes {
		return 0, fmt.Errorf("%q is too small to work with; at least %dMiB", s, natsconf.LeastStoreBytes>>20)
	}
	return n, nil
}

// plain gives an error of the os package without its operation and path, which the setting's own line has.
func plain(err error) string {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}
