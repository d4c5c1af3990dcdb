package callback

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
	"verifyd/sessions/wire"
)

const (
	// fallbackDelay is the head start of each address before the next one is tried in parallel (RFC 8305 §5).
	fallbackDelay = 250 * time.Millisecond

	// maxAddresses bounds what one dial tries: a name may resolve to hundreds of addresses. Each handshake
	// takes time from the others, and there is a next try.
	maxAddresses, maxHandshakes = 8, 3
)

// Dial returns a ready connection to u's destination: DNS, address check, TCP and TLS are all done. The error
// is a *NotSent: not one byte of a request has left. The caller owns the connection and closes it. Dial
// starts goroutines while it runs, and waits for all of them.
func (c *Client) Dial(ctx context.Context, u urlpolicy.URL) (*Conn, error) {
	anybody := func(context.Context, netip.Addr) (func(), error) { return func() {}, nil }
	cn, _, err := c.DialAdmitted(ctx, u, anybody)
	return cn, err
}

// Admit is called before an address is connected to, with the time that the dial has left. The function that
// it returns is called when the connection is no longer used. If it fails with ErrAddressBusy, that shows
// nothing about the receiver.
type Admit func(ctx context.Context, to netip.Addr) (leave func(), err error)

// ErrAddressBusy is returned if no further connection may be made to an address at the moment.
var ErrAddressBusy = errors.New("no connection became free in time")

// DialAdmitted is Dial, but connects to each address only once admit allows it. leave belongs to the
// connection, and must be called.
func (c *Client) DialAdmitted(ctx context.Context, u urlpolicy.URL,
	admit Admit) (cn *Conn, leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout())
	defer cancel()
	d := dial{client: c, url: u, admit: admit, watch: startWatch()}
	cn, notSent := d.run(ctx)
	if notSent != nil {
		return nil, nil, notSent
	}
	return cn, d.leave, nil
}

// dialTimeout bounds a whole dial.
func (c *Client) dialTimeout() time.Duration { return c.config.Timeout / 2 }

// dial is one call of Dial and what it has learnt.
type dial struct {
	client  *Client
	url     urlpolicy.URL
	admit   Admit
	watch   *stopwatch
	timing  facts.Timing
	address string
	asked   bool   // the receiver has asked for a client certificate
	leave   func() // of the connection that resulted
}

func (d *dial) run(ctx context.Context) (*Conn, *NotSent) {
	addrs, err := d.resolve(ctx)
	d.timing.DNS = d.watch.step()
	if err != nil {
		return nil, d.notSent(failure.DNS, dnsReason(err, d.url.Host()), err)
	}
	var refused *NotSent // by an address that was connected to
	for tries := 0; len(addrs) > 0 && tries < maxHandshakes; tries++ {
		p, left, err := d.connect(ctx, addrs)
		d.timing.Connect += d.watch.step()
		if err != nil {
			if refused == nil {
				class, reason := connectReason(err, d.url.Host(), d.client.dialTimeout())
				refused = d.notSent(class, reason, err)
			}
			break
		}
		addrs = left
		cn, err := d.secure(ctx, p, len(addrs) > 0)
		d.timing.TLS += d.watch.step()
		if err == nil {
			d.timing.Total = d.watch.total()
			cn.timing, cn.address, d.leave = d.timing, d.address, p.leave
			return cn, nil
		}
		p.close()
		reason := tlsReason(err, theReceiver, d.url.Host())
		if d.asked {
			reason += wantsCertificate
		}
		refused = d.notSent(failure.TLS, reason, err)
	}
	d.timing.Total = d.watch.total()
	refused.Timing = d.timing
	return nil, refused
}

func (d *dial) notSent(class failure.Class, detail string, err error) *NotSent {
	d.timing.Total = d.watch.total()
	return &NotSent{Class: class, Detail: detail, Timing: d.timing, Address: d.address, Err: err}
}

// resolve returns the addresses to try, in order.
func (d *dial) resolve(ctx context.Context) ([]netip.AddrPort, error) {
	if ip := d.url.Addr(); ip.IsValid() {
		return []netip.AddrPort{netip.AddrPortFrom(ip, d.url.Port())}, nil
	}
	name := d.url.Host()
	if strings.Contains(name, ".") {
		// Rooted: the search list of resolv.conf would turn hooks.example into
		// hooks.example.svc.cluster.local.
		name += "."
	}
	ips, err := d.client.config.Resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: name, IsNotFound: true}
	}
	ips = interleave(ips)
	ips = ips[:min(len(ips), maxAddresses)]
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip, d.url.Port())
	}
	return addrs, nil
}

// interleave alternates the families, beginning with the first one's, and keeps each family's order (RFC
// 8305 §4). It unmaps IPv4-mapped addresses: the system would connect to the embedded address, so that is
// the one to judge.
func interleave(ips []netip.Addr) []netip.Addr {
	var first, second []netip.Addr
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() == ips[0].Unmap().Is4() {
			first = append(first, ip)
		} else {
			second = append(second, ip)
		}
	}
	mixed := make([]netip.Addr, 0, len(ips))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed
}

// reach returns a path to one address, as soon as it may be connected to.
func (d *dial) reach(ctx context.Context, addr netip.AddrPort) (path, error) {
	leave, err := d.admit(ctx, addr.Addr())
	if err != nil {
		return path{}, err
	}
	p, err := d.open(ctx, addr)
	if err != nil {
		leave()
		return path{}, err
	}
	p.leave = leave
	return p, nil
}

// open connects, directly or through the egress proxy. Either way the policy judges the address immediately
// before it is used.
func (d *dial) open(ctx context.Context, addr netip.AddrPort) (path, error) {
	if g := d.client.gateway; g != nil {
		return g.tunnel(ctx, addr)
	}
	return dialPath(ctx, d.client.dial, addr.String())
}

// dialResult is the end of one connection attempt.
type dialResult struct {
	path path
	addr netip.AddrPort
	err  error
}

// connect returns the first path that an address yields, and the addresses that are left: neither that one,
// nor those that failed. Each starts when the one before has failed or fallbackDelay has passed, unless the
// egress proxy itself fails. The error joins one for each address that was tried.
func (d *dial) connect(ctx context.Context, addrs []netip.AddrPort) (p path, left []netip.AddrPort,
	err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan dialResult)
	open, next := 0, 0
	start := func() {
		addr := addrs[next]
		next, open = next+1, open+1
		go func() {
			p, err := d.reach(ctx, addr)
			ends <- dialResult{p, addr, err}
		}()
	}
	var errs []error
	left = slices.Clone(addrs)
	delay := time.NewTicker(fallbackDelay)
	defer delay.Stop()
	for start(); open > 0; {
		select {
		case <-delay.C:
			if next < len(addrs) {
				start()
			}
		case end := <-ends:
			open--
			d.address = end.addr.String()
			left = slices.DeleteFunc(left, func(a netip.AddrPort) bool { return a == end.addr })
			if end.err == nil {
				cancel()
				drain(ends, open)
				return end.path, left, nil
			}
			errs = append(errs, end.err)
			if fault, ok := errors.AsType[*proxyFault](end.err); ok && fault.own() {
				next = len(addrs) // the others would meet the same
			}
			if next < len(addrs) {
				delay.Reset(fallbackDelay)
				start()
			}
		}
	}
	return path{}, nil, errors.Join(errs...)
}

// drain waits for the attempts that came too late and closes their connections.
func drain(ends <-chan dialResult, open int) {
	for range open {
		if end := <-ends; end.err == nil {
			end.path.close()
		}
	}
}

// secure does the TLS handshake. The certificate must be valid for the host of the URL. If there are other
// addresses, a quarter of the time that is left is theirs.
func (d *dial) secure(ctx context.Context, p path, others bool) (*Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer cancel()
	}
	config := d.client.tls.Clone()
	config.ServerName = d.url.Host()
	d.asked = false
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		d.asked = true
		return new(tls.Certificate), nil // none
	}
	inner := &wire.Records{Conn: p.over}
	session := tls.Client(inner, config)
	if err := session.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return &Conn{
		tls: session, wire: p.wire, inner: inner, outer: p.outer, destination: d.url.HostPort(),
		timeout: d.client.config.Timeout, fresh: true, asked: d.asked,
	}, nil
}
