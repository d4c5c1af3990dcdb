package config

import "time"

// Settings are the raw values of flags, environment and file, as text if this program reads them more
// strictly than the flag library would. Config turns them into a Config.
type Settings struct {
	edgeSettings     `embed:"" group:"process"`
	NetworkSettings  `embed:"" group:"networks"`
	callbackSettings `embed:"" group:"callbacks"`
	limitSettings    `embed:"" group:"limits"`
	LogSettings      `embed:"" group:"log"`
	traceSettings    `embed:"" group:"traces"`
	alarmSettings    `embed:"" group:"alarms"`
	copySettings     `embed:"" group:"copy"`
	StoreSettings    `embed:"" group:"store"`

	Roles string `group:"process" default:"edge,dispatcher" help:"What this process runs: edge, dispatcher or both."`
}

// StoreSettings configure where the data is; all commands that use it share them.
type StoreSettings struct {
	DataDir       string        `default:"verifyd-data" help:"Directory of the embedded store."`
	NATSURL       string        `name:"nats-url" help:"External NATS servers (nats://a:4222,nats://b:4222); empty: embedded."`
	NATSCreds     string        `name:"nats-creds" help:"Credential for the external NATS servers: a credentials file, or the seed of an nkey."`
	NATSCAFile    string        `name:"nats-ca-file" help:"Extra PEM roots for the external servers' certificates."`
	Replicas      int           `help:"Copies of every stream; default 1 embedded, 3 external."`
	Sync          string        `default:"always" help:"When the embedded store is synced to the disk: always, or interval, which is faster but can lose two minutes in a power cut."`
	StoreLimit    string        `default:"8GiB" help:"Size limit of the embedded store, at least 256MiB; above 90 % of it, or with less than 64 MiB left, no new sessions are accepted."`
	KeepResults   time.Duration `default:"72h" help:"How long results can be read."`
	SecretKey     string        `secret:"" help:"Master key that seals secrets in the store: 32 bytes in base64; all processes share it."`
	SecretKeyFile string        `help:"File with the master key; embedded default: secret.key in the data directory."`
}

// ServerSettings configure which service on another machine a command manages, in place of a store.
type ServerSettings struct {
	Server       string `placeholder:"URL" help:"Manage the service with this {base_url} over HTTP, from any machine, with an operator token; empty: use the store."`
	Token        string `secret:"" placeholder:"vfyop_…" help:"The operator token (verifyd operator token create)."`
	TokenFile    string `placeholder:"FILE" help:"File with the operator token."`
	ServerCAFile string `name:"server-ca-file" placeholder:"FILE" help:"Extra PEM roots for the certificate of the service."`
}

type edgeSettings struct {
	Listen         string        `default:"127.0.0.1:8080" help:"Public address."`
	BaseURL        string        `name:"base-url" help:"{base_url} under which users reach this service; may have a path prefix; default: http://localhost and the listening port."`
	AdminListen    string        `default:"127.0.0.1:9090" help:"Address of /metrics, /livez, /readyz, /debug/pprof and /debug/log-level; empty: none."`
	AdminNames     []string      `sep:"," help:"Host names accepted in requests to the operators' address, such as a scraper's target; IP addresses, localhost and the name in --admin-listen are always accepted."`
	TrustedProxies []string      `sep:"," help:"CIDRs of proxies whose X-Forwarded-For is trusted."`
	Binding        string        `default:"link" help:"What a session asks to be proven if neither its start nor its account says: link, code or account; see INTEGRATING.md."`
	MinBinding     string        `default:"link" help:"The least that a session may ask for: link, code or account."`
	StoreWait      time.Duration `default:"12s" help:"How long a request waits for the store, for example while the NATS servers elect another leader because one has failed: 1s to 14s."`
	PlainSessions  bool          `help:"Store new sessions so that builds that do not seal them can read them: only for as long as such a build runs alongside."`
}

// NetworkSettings configure where users and members sign in, and who may log in to the dashboard.
type NetworkSettings struct {
	NetworksFile        string `help:"YAML list of identity networks; see NETWORKS.md."`
	NetworkIssuer       string `help:"Issuer of a single OpenID Connect network, without a file; its id is default."`
	NetworkKind         string `help:"Kind of that network: oidc (default), or one that is known by name and needs no issuer, such as discord."`
	NetworkName         string `help:"Name of that network, as users read it."`
	NetworkClientID     string `name:"network-client-id" help:"Client id at that network."`
	NetworkClientSecret string `secret:"" help:"Client secret at that network."`
	NetworkCAFile       string `name:"network-ca-file" help:"Extra PEM roots for the certificates of identity networks."`
	NetworkDashboard    bool   `help:"That network is also for logins to the dashboard; its second redirect URI is {base_url}/dashboard/login/default/callback."`
	TestKeys            bool   `help:"Accept test keys (vfytest_…); their sessions use the built-in network and cost no quota."`
	DevNetwork          bool   `help:"Offer the built-in test network to live sessions, on loopback only."`
	DevNetworkListen    string `default:"127.0.0.1:0" help:"Address of the built-in network."`
	DevNetworkDashboard bool   `help:"The built-in network is also for logins to the dashboard: anybody who reaches it can log in as anybody."`
	DashboardAllow      string `help:"Who may create an account on the dashboard: open, or a list of identities (network:subject) and verified e-mail domains (@example.org); empty: nobody new."`
}

type callbackSettings struct {
	CallbackCAFile      string        `name:"callback-ca-file" help:"Extra PEM roots for the certificates of receivers and of the egress proxy."`
	CallbackAllowCIDRs  []string      `name:"callback-allow-cidrs" sep:"," help:"Non-public addresses that the dispatcher may reach."`
	CallbackRefuse      []string      `name:"callback-refuse" sep:"," help:"Networks and hosts that no callback may reach, such as 203.0.113.0/24,bot.example.com,*.example.net."`
	CallbackAllowPorts  string        `default:"*" help:"Ports that a callback_url may name: * or a list such as 443,8443."`
	CallbackProxy       string        `help:"Egress proxy that callbacks go through: http://[user:password@]host:port, or https."`
	CallbackConnections int           `default:"64" help:"Maximum number of concurrent callbacks from this process to one receiver host, 1 to 1,024."`
	CallbackAttempts    int           `default:"2048" help:"Maximum number of concurrent callbacks from this process to all hosts."`
	CallbackShare       int           `placeholder:"N" help:"Maximum number of these for one account; default: half."`
	CallbackTimeout     time.Duration `default:"10s" help:"Time limit of a whole callback attempt."`
	CallbackPolicy      string        `default:"once" help:"once, or at-least-once: callbacks are also sent again after an unknown end, 408, 425, 429 and 5xx, with the same webhook-id."`
	CallbackRetryFor    time.Duration `default:"15m" help:"How long a callback that could not be sent is retried."`
}

type limitSettings struct {
	RateLimit      string `default:"20/s" help:"Sessions that one API key may start, counted across all processes: for example 20/s, 100/m or 1000/h."`
	RateBurst      int    `default:"40" help:"Burst above the rate limit."`
	FailedKeyLimit string `default:"10/m" help:"Requests without a valid API key that one address may send to a process, with bursts of twice as many; further ones get 429."`
	SignInLimit    string `default:"600/m" help:"Sign-ins that one address may start (IPv6: one /64 network), at once and in that time; the limits of returns and of dashboard logins derive from it. A proxy in front must be in trusted-proxies, or all users appear to have one address."`
	MonthlyQuota   int64  `default:"100000" help:"Sessions that one account may start in a UTC month."`
}

// LogSettings configure how much is logged, and in which form.
type LogSettings struct {
	LogLevel  string `default:"info" help:"trace, debug, info, warn or error."`
	LogFormat string `default:"auto" help:"auto (console on a terminal, JSON otherwise), console or json."`
}
