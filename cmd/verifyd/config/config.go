package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/logging"
	"verifyd/cmd/verifyd/trace"
	"verifyd/cmd/verifyd/version"
	"verifyd/dispatcher/callback"
	"verifyd/edge/account"
	"verifyd/edge/api"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

// Config is what a Program runs with: every value checked.
type Config struct {
	Store      Store
	Edge       bool // this process runs the edge
	Dispatcher bool // this process runs the dispatcher

	Listen, AdminListen string
	AdminNames          []string // of the operators' address, besides addresses and localhost
	BaseURL             string   // empty: derived from the listening port
	TrustedProxies      []netip.Prefix
	Levels              api.Levels
	StoreWait           time.Duration
	PlainSessions       bool // new sessions are not sealed under keys of their own
	Networks            []netsettings.Settings
	NetworkRoots        *x509.CertPool // nil: the system's
	DevNetwork          string         // where the dev network listens; empty: none
	DevDashboard        bool           // it leads into the dashboard, too
	DashboardAllow      logins.Allow
	DevForLive          bool // live sessions may use it too
	TestKeys            bool // test keys are accepted; their sessions use only the dev network

	CallbackRoots       *x509.CertPool // nil: the system's
	CallbackPolicy      *urlpolicy.Policy
	CallbackProxy       *callback.Proxy // nil: none
	CallbackConnections int
	CallbackAttempts    int
	CallbackShare       int // of one account
	CallbackTimeout     time.Duration
	CallbackRetryFor    time.Duration
	DefaultPolicy       sessions.Policy

	Rate       account.Rate
	FailedKeys account.Rate // per address
	SignIns    account.Rate // per address
	Quota      int64

	Log    zerolog.Logger
	Logger *logging.Logger // the writer of Log; nil in tests

	Certificates []certificate.Certificate // of the files with roots
	Met          *certificate.Met          // those of servers, but for NATS; nil: they are not kept

	Traces         *trace.Config // nil: no tracing
	TraceReceivers bool
	Alarms         Alarms
	CopyTo         string        // folder of the store's copy; empty: none
	StoreScrub     time.Duration // how often the embedded store's records are read again; 0: never

	Now func() time.Time // set by tests; nil: the store's time
}

// Config checks every setting. The error lists all faults.
func (s Settings) Config(log zerolog.Logger) (Config, error) {
	var f Faults
	c := Config{Log: log, Store: s.StoreSettings.Config(&f), Met: new(certificate.Met)}
	s.roles(&c, &f)
	s.edgeConfig(&c, &f)
	s.NetworkConfig(&c, &f)
	s.callbackConfig(&c, &f)
	s.limitConfig(&c, &f)
	c.Alarms = s.alarmSettings.config(&f, c.CallbackPolicy)
	c.CopyTo, c.StoreScrub = s.copySettings.config(&f, c.Store), s.scrub(&f)
	c.Traces, c.TraceReceivers = s.traceSettings.config(&f, c.Met), s.TraceCallbacks
	c.Certificates = certificates(map[string]string{
		"nats-ca-file": s.NATSCAFile, "network-ca-file": s.NetworkCAFile,
		"callback-ca-file": s.CallbackCAFile, "trace-ca-file": s.TraceCAFile,
	})
	if s.KeepResults < s.CallbackRetryFor+RetentionSpare {
		f.Add("keep-results", fmt.Sprintf(
			"%s is less than an hour longer than VERIFYD_CALLBACK_RETRY_FOR (%s): outcomes could be "+
				"deleted before they are delivered", s.KeepResults, s.CallbackRetryFor),
			"for example 72h")
	}
	return c, f.Err()
}

func (s Settings) roles(c *Config, f *Faults) {
	for role := range strings.SplitSeq(s.Roles, ",") {
		switch strings.TrimSpace(role) {
		case "edge":
			c.Edge = true
		case "dispatcher":
			c.Dispatcher = true
		default:
			f.Add("roles", fmt.Sprintf("%q is not a role", role), "use edge, dispatcher or edge,dispatcher")
		}
	}
}

func (s Settings) edgeConfig(c *Config, f *Faults) {
	c.Listen = Address(f, "listen", s.Listen)
	if s.AdminListen != "" {
		c.AdminListen = Address(f, "admin-listen", s.AdminListen)
		c.AdminNames = s.adminNames(f)
	}
	c.TrustedProxies, c.PlainSessions = prefixes(f, "trusted-proxies", s.TrustedProxies), s.PlainSessions
	c.Levels = api.Levels{
		Default: level(f, "binding", s.Binding), Min: level(f, "min-binding", s.MinBinding),
	}
	if !c.Levels.Default.AtLeast(c.Levels.Min) {
		c.Levels.Default = c.Levels.Min
	}
	if c.StoreWait = s.StoreWait; c.StoreWait < time.Second || c.StoreWait > places.MaxStoreWait {
		f.outOfRange("store-wait", s.StoreWait,
			fmt.Sprintf("use 1s to %s, for example 12s", places.MaxStoreWait))
	}
	if s.BaseURL != "" {
		base, _, err := web.ParseBaseURL(s.BaseURL)
		if err != nil {
			f.Add("base-url", fmt.Sprintf("%q is %v", s.BaseURL, err),
				"for example https://verify.example.com")
		}
		c.BaseURL = base
	}
}

// NetworkConfig checks the settings of identity networks, and those of who may log in.
func (s Settings) NetworkConfig(c *Config, f *Faults) {
	c.TestKeys, c.DevForLive = s.TestKeys, s.DevNetwork
	c.NetworkRoots = Roots(f, "network-ca-file", s.NetworkCAFile)
	if c.TestKeys || c.DevForLive || s.DevNetworkDashboard {
		c.DevNetwork, c.DevDashboard = s.DevNetworkListen, s.DevNetworkDashboard
	}
	var err error
	if c.DashboardAllow, err = logins.ParseAllow(s.DashboardAllow); err != nil {
		f.Add("dashboard-allow", err.Error(), "use open, or a list such as example:12345,@example.org")
	}
	if s.NetworksFile != "" {
		c.Networks = append(c.Networks, NetworksFile(f, s.NetworksFile)...)
	}
	if s.NetworkIssuer != "" || s.NetworkKind != "" {
		n := netsettings.Settings{
			ID: "default", Name: s.NetworkName, Kind: s.NetworkKind, Issuer: s.NetworkIssuer,
			ClientID: s.NetworkClientID, ClientSecret: s.NetworkClientSecret, Dashboard: s.NetworkDashboard,
		}
		if n.Kind == "" {
			n.Kind = netsettings.KindOIDC
		}
		if _, err := network.New(n, network.Options{BaseURL: "https://verify.example.com"}); err != nil {
			f.Add("network-issuer", err.Error(), "one network needs VERIFYD_NETWORK_ISSUER and "+
				"VERIFYD_NETWORK_NAME, or VERIFYD_NETWORK_KIND, with VERIFYD_NETWORK_CLIENT_ID and "+
				"VERIFYD_NETWORK_CLIENT_SECRET")
		}
		if isPlaceholder(n.ClientSecret) {
			f.Add("network-client-secret", notFilledIn, "set it to what the network shows with the client id")
		}
		c.Networks = append(c.Networks, n)
	}
	if s.NetworkIssuer == "" && s.NetworkKind == "" &&
		(s.NetworkDashboard || s.NetworkClientID != "" || s.NetworkClientSecret != "" ||
			s.NetworkName != "") {
		f.Add("network-issuer", "not set, but other settings of that network are",
			"set it to the network's issuer, for example https://accounts.example.com, or set "+
				"VERIFYD_NETWORK_KIND")
	}
	if c.Edge && len(c.Networks) == 0 && !s.DevNetwork && s.NetworksFile == "" {
		f.Add("network-issuer", "no identity network is configured, so nobody could sign in",
			"set VERIFYD_NETWORK_KIND, such as discord, or VERIFYD_NETWORK_ISSUER to an OpenID Connect "+
				"issuer such as https://accounts.example.com, with VERIFYD_NETWORK_CLIENT_ID and "+
				"VERIFYD_NETWORK_CLIENT_SECRET; or set VERIFYD_NETWORKS_FILE; to try things out: "+
				"--dev-network")
	}
}

// notFilledIn is what is wrong with a secret that samples show.
const notFilledIn = `the value has a "…", as in the samples: it was not filled in`

// isPlaceholder reports whether a secret is what samples show in the place of one.
func isPlaceholder(secret string) bool { return strings.Contains(secret, "…") || secret == "..." }

// NetworksFile reads a YAML list of identity networks.
func NetworksFile(f *Faults, path string) []netsettings.Settings {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		f.Add("networks-file", "the file cannot be read: "+Plain(err),
			"give the path of a YAML list of networks")
		return nil
	}
	networks, err := netsettings.ParseFile(b)
	if err != nil {
		f.Add("networks-file", err.Error(), "docs/NETWORKS.md shows a complete file")
	}
	for _, n := range networks {
		if isPlaceholder(n.ClientSecret) {
			f.Add("networks-file", fmt.Sprintf("network %s: client_secret: %s", n.NetworkID(), notFilledIn),
				"set it to what the network shows with the client id")
		}
	}
	return networks
}

func (s Settings) callbackConfig(c *Config, f *Faults) {
	c.CallbackRoots = Roots(f, "callback-ca-file", s.CallbackCAFile)
	var ports []uint16
	if s.CallbackAllowPorts != "*" {
		for text := range strings.SplitSeq(s.CallbackAllowPorts, ",") {
			port, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
			if err != nil || port == 0 {
				f.Add("callback-allow-ports", fmt.Sprintf("%q is not a port", text),
					"use * or a list such as 443,8443")
			}
			ports = append(ports, uint16(port))
		}
	}
	c.CallbackPolicy = urlpolicy.NewPolicy(prefixes(f, "callback-allow-cidrs", s.CallbackAllowCIDRs), ports)
	for _, entry := range s.CallbackRefuse {
		refusing, err := c.CallbackPolicy.Refusing(entry)
		if err != nil {
			f.Add("callback-refuse", fmt.Sprintf("%q is %s", entry, err),
				"for example 203.0.113.0/24, 192.0.2.7, bot.example.com or *.example.net")
			continue
		}
		c.CallbackPolicy = refusing
	}
	if s.CallbackProxy != "" {
		var err error
		if c.CallbackProxy, err = callback.ParseProxy(s.CallbackProxy); err != nil {
			f.Add("callback-proxy", err.Error(),
				"for example http://proxy.internal:3128 or https://user:password@proxy.internal:3129, "+
					"with special characters of the password percent-encoded")
		}
	}
	c.DefaultPolicy = Policy(f, "callback-policy", s.CallbackPolicy)
	s.callbackBounds(c, f)
	c.CallbackTimeout, c.CallbackRetryFor = s.CallbackTimeout, s.CallbackRetryFor
	if c.CallbackTimeout < time.Second || c.CallbackTimeout > time.Minute {
		f.outOfRange("callback-timeout", s.CallbackTimeout, "use 1s to 1m, for example 10s")
	}
	if c.CallbackRetryFor < 0 || c.CallbackRetryFor > 24*time.Hour {
		f.outOfRange("callback-retry-for", s.CallbackRetryFor, "use 0s to 24h, for example 15m")
	}
	// 0s is one try; the dispatcher's zero is its default
	c.CallbackRetryFor = max(c.CallbackRetryFor, time.Nanosecond)
}

func (s Settings) limitConfig(c *Config, f *Faults) {
	rate, err := limit.ParseRate(s.RateLimit)
	if err != nil {
		f.Add("rate-limit", err.Error(), "for example 20/s")
		return
	}
	rate.Burst = s.RateBurst
	if err := limit.Valid(rate); err != nil {
		f.Add("rate-burst", err.Error(), "for example 40")
	}
	if c.FailedKeys, err = limit.ParseRate(s.FailedKeyLimit); err != nil {
		f.Add("failed-key-limit", err.Error(), "for example 10/m")
	} else if c.FailedKeys.Burst *= 2; limit.Valid(c.FailedKeys) != nil {
		f.Add("failed-key-limit", fmt.Sprintf("%s is too much: its burst is twice that", s.FailedKeyLimit),
			"for example 10/m")
	}
	if c.SignIns, err = limit.ParseRate(s.SignInLimit); err != nil {
		f.Add("sign-in-limit", err.Error(), "for example 600/m")
	}
	c.Rate, c.Quota = rate, s.MonthlyQuota
	if c.Quota < 1 {
		f.Add("monthly-quota", fmt.Sprintf("%d allows no session", s.MonthlyQuota), "for example 100000")
	}
}

// KeepResults returns how long results are kept by this process's settings.
func (c Config) KeepResults() time.Duration {
	return cmp.Or(c.Store.Topology.KeepResults, topology.DefaultKeepResults)
}

// NATSRoles returns the roles of this process on the NATS servers.
func (c Config) NATSRoles() (roles []permission.Role) {
	if c.Edge {
		roles = append(roles, permission.RoleEdge)
	}
	if c.Dispatcher {
		roles = append(roles, permission.RoleDispatcher)
	}
	return roles
}

// CallbackClient returns the client of receivers, with this bound of an attempt.
func (c Config) CallbackClient(timeout time.Duration) *callback.Client {
	return c.client(timeout, c.Met.VerifyReceiver())
}

// AlarmClient returns the client of the address for operator events.
func (c Config) AlarmClient() *callback.Client {
	return c.client(c.CallbackTimeout, c.Met.Verify("alarm address"))
}

func (c Config) client(timeout time.Duration, verify func(tls.ConnectionState) error) *callback.Client {
	return callback.New(callback.Config{
		RootCAs: c.CallbackRoots, Policy: c.CallbackPolicy, Timeout: timeout,
		VerifyReceiver: verify, VerifyProxy: c.Met.Verify("egress proxy"),
		UserAgent: "verifyd/" + version.Text(), Proxy: c.CallbackProxy,
	})
}

// OwnNames returns the names by which users know the service itself: its identity networks, and its host.
func (c Config) OwnNames() (names []string) {
	for _, n := range c.Networks {
		names = append(names, n.NetworkID(), n.Name)
	}
	if base, err := url.Parse(c.BaseURL); err == nil {
		names = append(names, base.Hostname())
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
