package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"verifyd/cmd/verifyd/spans"
	"verifyd/edge/network"
	"verifyd/sessions/target"
)

// outsideFor bounds each question to the outside: name servers, an identity network, an egress proxy.
const outsideFor = 5 * time.Second

// outside looks at what is neither here nor NATS. Nothing of it keeps a service from starting: it may come back, and sessions wait.
func (s *survey) outside(ctx context.Context, c config, probe string) {
	if c.edge {
		s.networks(ctx, c)
	}
	if c.dispatch {
		s.egress(ctx, c)
	}
	if c.traces != nil {
		s.collector(ctx, c)
	}
	if c.alarms.url != (target.URL{}) {
		s.alarmAddress(ctx, c)
	}
	if probe != "" {
		s.probe(ctx, c, probe)
	}
}

// collector asks where spans go to take none.
func (s *survey) collector(ctx context.Context, c config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	if err := spans.Probe(try, *c.traces); err != nil {
		s.warn("traces", "check VERIFYD_TRACE_ENDPOINT, VERIFYD_TRACE_HEADERS and the collector; until it takes spans they are dropped, and the service runs without", "%s", err)
		return
	}
	s.ok("traces", "the collector takes spans")
}

// alarmAddress connects to where operator events are posted, through the guard that they go through, and sends nothing.
func (s *survey) alarmAddress(ctx context.Context, c config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	conn, err := c.callbackClient().Dial(try, c.alarms.url)
	if err != nil {
		s.warn("alarms", "check VERIFYD_ALARM_URL, and that VERIFYD_CALLBACK_ALLOW_CIDRS covers an address that is not public; until it is reached, events are in the log and on NATS alone",
			"%s cannot be reached: %s", c.alarms.url.HostPort(), err)
		return
	}
	_ = conn.Close()
	s.ok("alarms", "%s can be reached; nothing was sent", c.alarms.url.HostPort())
}

// networks asks all identity networks at once: several that are silent take no longer than one.
func (s *survey) networks(ctx context.Context, c config) {
	each := make([]survey, len(c.networks))
	var asked sync.WaitGroup
	for i, settings := range c.networks {
		asked.Go(func() { each[i].network(ctx, c, settings) })
	}
	asked.Wait()
	for _, of := range each {
		s.findings = append(s.findings, of.findings...)
	}
}

// network asks an identity network for its metadata, where it has some.
func (s *survey) network(ctx context.Context, c config, settings network.Settings) {
	n, err := network.New(settings, network.Options{BaseURL: cmp.Or(c.baseURL, "https://verify.example.com")})
	if err != nil {
		s.err("networks", "mend its settings", "%s: %s", settings.ID, err)
		return
	}
	try, cancel := context.WithTimeout(ctx, outsideFor)
	defer cancel()
	_, err = n.AuthURL(try, network.NewAttempt())
	switch {
	case err != nil:
		s.warn("networks", "check the issuer, and that it can be reached from here; until then nobody can sign in by it", "%s does not answer: %s", n.ID(), err)
	case settings.Kind == network.KindOIDC:
		s.ok("networks", "%s answers", n.ID())
	default:
		s.ok("networks", "%s is known by its settings", n.ID())
	}
}

// metadataService is where clouds hand a machine its credentials, to whoever can reach it from there.
var metadataService = netip.MustParseAddr("169.254.169.254")

// guard looks at what the addresses are that callbacks may reach.
func (s *survey) guard(c config) {
	if !c.dispatch {
		return
	}
	if c.callbackPolicy.CheckAddr(netip.MustParseAddrPort("192.0.9.1:443")) != nil { // a public address, so the port it is
		s.warn("egress", "add 443 to VERIFYD_CALLBACK_ALLOW_PORTS", "callbacks may not go to port 443, where nearly all receivers are")
	}
	var inside []string
	for _, text := range []string{"127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1"} {
		if c.callbackPolicy.CheckIP(netip.MustParseAddr(text)) == nil {
			inside = append(inside, text)
		}
	}
	switch {
	case c.callbackPolicy.CheckIP(metadataService) == nil:
		s.warn("egress", "name smaller networks in VERIFYD_CALLBACK_ALLOW_CIDRS", "callbacks may reach %s, where clouds hand out a machine's credentials", metadataService)
	case len(inside) > 0:
		s.warn("egress", "nothing, if this is meant; members of accounts see what answers there", "callbacks may reach addresses that are not public, such as %s", strings.Join(inside, ", "))
	default:
		s.ok("egress", "callbacks reach public addresses only")
	}
}

// egress looks at the way out: name servers, and the proxy where there is one.
func (s *survey) egress(ctx context.Context, c config) {
	try, cancel := context.WithTimeout(ctx, outsideFor)
	// The root's own name servers: what every resolver can answer, and what names nobody.
	_, err := (&net.Resolver{PreferGo: true}).LookupNS(try, ".")
	cancel()
	if answered(err) {
		s.ok("egress", "names are resolved")
	} else {
		s.warn("egress", "check the machine's name servers (/etc/resolv.conf); until they answer, callbacks wait", "names are not resolved: %s", err)
	}
	if c.callbackProxy == nil {
		return
	}
	conn, err := (&net.Dialer{Timeout: outsideFor}).DialContext(ctx, "tcp", c.callbackProxy.Address())
	if err != nil {
		s.warn("egress", "check VERIFYD_CALLBACK_PROXY; until it can be reached, callbacks wait", "the egress proxy cannot be reached: %s", err)
		return
	}
	_ = conn.Close()
	s.ok("egress", "the egress proxy can be reached")
}

// answered says whether a name server said something, be it that there is nothing.
func answered(err error) bool {
	var dns *net.DNSError
	return err == nil || errors.As(err, &dns) && dns.IsNotFound
}

// probe connects as a callback would, and sends nothing.
func (s *survey) probe(ctx context.Context, c config, raw string) {
	const area = "probe"
	u, err := c.callbackPolicy.Parse(raw)
	if fault, ok := errors.AsType[*target.Fault](err); ok {
		s.err(area, "give an address that a session could be started with", "the URL is refused: %s", fault)
		return
	}
	conn, err := c.callbackClient().Dial(ctx, u)
	if err != nil {
		s.err(area, "mend what keeps callbacks from "+u.HostPort(), "%s", err)
		return
	}
	defer func() { _ = conn.Close() }()
	s.ok(area, "%s can be reached: name, address, TCP and certificate are well, and nothing was sent", u.HostPort())
}
