package check

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/trace"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/sessions/urlpolicy"
)

// outsideFor bounds each request to name servers, identity networks and the egress proxy.
const outsideFor = 5 * time.Second

// checkOutside checks what is neither on this machine nor NATS. None of it keeps a service from starting: it
// may come back, and sessions wait.
func checkOutside(ctx context.Context, s *Survey, c config.Config, probe string) {
	if c.Edge {
		checkNetworks(ctx, s, c)
	}
	if c.Dispatcher {
		checkEgress(ctx, s, c)
	}
	if c.Traces != nil {
		checkCollector(ctx, s, c)
	}
	if c.Alarms.URL != (urlpolicy.URL{}) {
		checkAlarmAddress(ctx, s, c)
	}
	if probe != "" {
		checkProbe(ctx, s, c, probe)
	}
	checkCertificates(s, c.Met.List())
}

// checkCollector sends an empty request to the collector of spans.
func checkCollector(ctx context.Context, s *Survey, c config.Config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	if err := trace.Probe(try, *c.Traces); err != nil {
		s.Warn("traces", "check VERIFYD_TRACE_ENDPOINT, VERIFYD_TRACE_HEADERS and the collector; until "+
			"it accepts spans they are dropped, and the service runs without", "%s", err)
		return
	}
	s.ok("traces", "the collector accepts spans")
}

// checkAlarmAddress connects to the address for operator events, through the same guard as they, and sends
// nothing.
func checkAlarmAddress(ctx context.Context, s *Survey, c config.Config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	conn, err := c.AlarmClient().Dial(try, c.Alarms.URL)
	if err != nil {
		s.Warn("alarms", "check VERIFYD_ALARM_URL, and that VERIFYD_CALLBACK_ALLOW_CIDRS covers an "+
			"address that is not public; until it is reached, events are only in the log and on NATS",
			"%s cannot be reached: %s", c.Alarms.URL.HostPort(), err)
		return
	}
	_ = conn.Close()
	s.ok("alarms", "%s can be reached; nothing was sent", c.Alarms.URL.HostPort())
}

// checkNetworks queries all identity networks at once, so that several silent ones take no longer than one.
func checkNetworks(ctx context.Context, s *Survey, c config.Config) {
	each := make([]Survey, len(c.Networks))
	var asked sync.WaitGroup
	for i, settings := range c.Networks {
		asked.Go(func() { checkNetwork(ctx, &each[i], c, settings) })
	}
	asked.Wait()
	for _, of := range each {
		s.findings = append(s.findings, of.findings...)
	}
}

// checkNetwork fetches the metadata of an identity network, if it has any.
func checkNetwork(ctx context.Context, s *Survey, c config.Config, settings netsettings.Settings) {
	n, err := network.New(settings, network.Options{
		BaseURL: cmp.Or(c.BaseURL, "https://verify.example.com"), RootCAs: c.NetworkRoots,
		VerifyConnection: c.Met.Verify("identity network"),
	})
	if err != nil {
		s.err("networks", "fix its settings", "%s: %s", settings.ID, err)
		return
	}
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	_, err = n.AuthURL(try, network.NewAttempt())
	switch {
	case err == nil && !checkDoubts(try, s, n): // it has said so
	case err != nil:
		s.Warn("networks", "check the issuer, and that it can be reached from here; until then nobody "+
			"can sign in there", "%s does not answer: %s", n.ID(), err)
	case settings.Kind == netsettings.KindOIDC:
		s.ok("networks", "%s answers", n.ID())
	default:
		s.ok("networks", "%s is known by its settings", n.ID())
	}
}

// checkDoubts reports what is odd about what a network publishes, and whether its keys can be read.
func checkDoubts(ctx context.Context, s *Survey, n *network.Network) (readable bool) {
	doubts, err := n.Doubts(ctx)
	if err != nil {
		s.Warn("networks", "check the address of its key set (jwks_uri); nobody can sign in there until it "+
			"can be read", "%s", err)
		return false
	}
	for _, doubt := range doubts {
		s.Warn("networks", "nothing to do while people can sign in there", "%s: %s", n.ID(), doubt)
	}
	return true
}

// metadataService is where clouds give a machine its credentials, and any program on it can read them.
var metadataService = netip.MustParseAddr("169.254.169.254")

// checkGuard checks which addresses callbacks may reach.
func checkGuard(s *Survey, c config.Config) {
	if !c.Dispatcher {
		return
	}
	// a public address, so the port is at fault
	if c.CallbackPolicy.CheckAddr(netip.MustParseAddrPort("192.0.9.1:443")) != nil {
		s.Warn("egress", "add 443 to VERIFYD_CALLBACK_ALLOW_PORTS",
			"callbacks may not go to port 443, where nearly all receivers are")
	}
	var inside []string
	for _, text := range []string{"127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1"} {
		if c.CallbackPolicy.CheckIP(netip.MustParseAddr(text)) == nil {
			inside = append(inside, text)
		}
	}
	switch {
	case c.CallbackPolicy.CheckIP(metadataService) == nil:
		s.Warn("egress", "name smaller networks in VERIFYD_CALLBACK_ALLOW_CIDRS",
			"callbacks may reach %s, where clouds hand out a machine's credentials", metadataService)
	case len(inside) > 0:
		s.Warn("egress", "nothing to do if this is intended; members of accounts see what answers there",
			"callbacks may reach addresses that are not public, such as %s", strings.Join(inside, ", "))
	default:
		s.ok("egress", "callbacks reach only public addresses")
	}
}

// checkEgress checks the way out: name servers, and the proxy if there is one.
func checkEgress(ctx context.Context, s *Survey, c config.Config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	// The root name servers: every resolver can answer this, and it reveals no name.
	_, err := (&net.Resolver{PreferGo: true}).LookupNS(try, ".")
	cancel()
	if answered(err) {
		s.ok("egress", "host names are resolved")
	} else {
		s.Warn("egress", "check the machine's name servers (/etc/resolv.conf); until they answer, "+
			"callbacks wait", "host names are not resolved: %s", err)
	}
	if c.CallbackProxy == nil {
		return
	}
	try, cancel = context.WithTimeout(ctx, outsideFor)
	defer cancel()
	if err := c.CallbackClient(c.CallbackTimeout).ReachProxy(try); err != nil {
		s.Warn("egress", "check VERIFYD_CALLBACK_PROXY, and VERIFYD_CALLBACK_CA_FILE if its certificate is "+
			"refused; until it can be reached, callbacks wait", "the egress proxy cannot be reached: %s", err)
		return
	}
	s.ok("egress", "the egress proxy can be reached")
}

// answered reports whether a name server answered, even if with no records.
func answered(err error) bool {
	var dns *net.DNSError
	return err == nil || errors.As(err, &dns) && dns.IsNotFound
}

// checkProbe connects as a callback would, and sends nothing.
func checkProbe(ctx context.Context, s *Survey, c config.Config, raw string) {
	const area = "probe"
	u, err := c.CallbackPolicy.Parse(raw)
	if fault, ok := errors.AsType[*urlpolicy.Fault](err); ok {
		s.err(area, "give an address with which a session could be started", "the URL is refused: %s", fault)
		return
	}
	conn, err := c.CallbackClient(c.CallbackTimeout).Dial(ctx, u)
	if err != nil {
		s.err(area, "fix what keeps callbacks from "+u.HostPort(), "%s", err)
		return
	}
	defer func() { _ = conn.Close() }()
	s.ok(area, "%s can be reached: name, address, TCP and certificate are valid, and nothing was sent",
		u.HostPort())
}
