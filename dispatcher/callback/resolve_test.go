package callback_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
)

const (
	dnsA         = 1
	dnsServFail  = 2
	dnsNoName    = 3
	dnsHeaderLen = 12
)

// nameServer is a real DNS server on loopback (RFC 1035 §4) for one test's names.
type nameServer struct {
	conn net.PacketConn
	// answer returns the addresses of a name at its n-th question for that type, counted from 1, and the
	// response code. A code below zero means no answer at all.
	answer func(name string, n int) ([]netip.Addr, int)

	mu    sync.Mutex
	asked []string // names, in order
	done  chan struct{}
}

func serveNames(t *testing.T, answer func(name string, n int) ([]netip.Addr, int)) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answer: answer, done: make(chan struct{})}
	go s.serve()
	t.Cleanup(func() {
		_ = conn.Close()
		<-s.done
	})
	return s
}

func (s *nameServer) serve() {
	defer close(s.done)
	counts := make(map[string]int)
	for b := make([]byte, 512); ; {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		name, kind, question := parseQuestion(b[:n])
		counts[name+string(rune(kind))]++
		s.mu.Lock()
		s.asked = append(s.asked, name)
		s.mu.Unlock()
		ips, code := s.answer(name, counts[name+string(rune(kind))])
		if code < 0 {
			continue
		}
		_, _ = s.conn.WriteTo(reply(b[:2], question, kind, ips, code), from)
	}
}

// parseQuestion returns the name, with its final dot, and type of a query, and the question section's bytes.
func parseQuestion(b []byte) (name string, kind uint16, question []byte) {
	i := dnsHeaderLen
	for b[i] != 0 {
		name += string(b[i+1:i+1+int(b[i])]) + "."
		i += 1 + int(b[i])
	}
	return name, binary.BigEndian.Uint16(b[i+1:]), b[dnsHeaderLen : i+5]
}

func reply(id, question []byte, kind uint16, ips []netip.Addr, code int) []byte {
	ips = slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return ip.Is4() != (kind == dnsA) })
	b := slices.Concat(id, []byte{0x81, 0x80 | byte(code), 0, 1, 0, byte(len(ips)), 0, 0, 0, 0}, question)
	for _, ip := range ips {
		data := ip.AsSlice()
		b = append(b, 0xc0, dnsHeaderLen, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		b = append(b, data...)
	}
	return b
}

func (s *nameServer) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// client returns a client that asks this name server.
func (s *nameServer) client(policy *urlpolicy.Policy, timeout time.Duration) *callback.Client {
	return s.clientThrough(nil, policy, timeout)
}

// clientThrough returns one that goes through an egress proxy.
func (s *nameServer) clientThrough(proxy *callback.Proxy, policy *urlpolicy.Policy,
	timeout time.Duration) *callback.Client {
	return callback.New(callback.Config{
		RootCAs: authority.Pool(), Policy: policy, Timeout: timeout, Proxy: proxy,
		Resolver: &net.Resolver{PreferGo: true,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
			}},
	})
}

// always answers every question with the same addresses.
func always(ips ...string) func(string, int) ([]netip.Addr, int) {
	var addrs []netip.Addr
	for _, ip := range ips {
		addrs = append(addrs, netip.MustParseAddr(ip))
	}
	return func(string, int) ([]netip.Addr, int) { return addrs, 0 }
}

// onlySecond plays the public internet: 127.0.0.2 may be reached, 127.0.0.1 may not.
var onlySecond = urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, nil)

// receivePublic starts a receiver on 127.0.0.2 whose port is free on 127.0.0.1: another process may have it.
func receivePublic(t *testing.T, config *tls.Config) (public *receiver, port string) {
	t.Helper()
	for free := false; !free; {
		public = receiveOn(t, "127.0.0.2:0", config, okAnswer)
		_, port, _ = strings.Cut(public.listener.Addr().String(), ":")
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			free = l.Close() == nil
		}
	}
	return public, port
}

// publicAndTrap starts a receiver on 127.0.0.2 and one on the same port of 127.0.0.1 that must not be
// reached.
func publicAndTrap(t *testing.T) (public, trap *receiver, u urlpolicy.URL) {
	t.Helper()
	public, port := receivePublic(t, nil)
	trap = receiveOn(t, "127.0.0.1:"+port, nil, okAnswer)
	u, err := onlySecond.Parse("https://hooks.example:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	return public, trap, u
}

func TestTheNameIsResolvedAndDialled(t *testing.T) {
	public, trap, u := publicAndTrap(t)
	s := serveNames(t, always("127.0.0.2"))
	answer := attempt(t.Context(), t, s.client(onlySecond, 10*time.Second), u)
	if answer.Verdict != delivered || answer.Address != public.listener.Addr().String() ||
		answer.Timing.DNS <= 0 {
		t.Errorf("%+v", answer)
	}
	if slices.ContainsFunc(s.names(), func(name string) bool { return name != "hooks.example." }) {
		t.Errorf("asked for %q", s.names())
	}
	if posts := public.stop(); len(posts) != 1 || posts[0].host != u.HostPort() {
		t.Errorf("%+v", posts)
	}
	if trap.stop(); trap.conns != 0 {
		t.Errorf("%d connections to the forbidden address", trap.conns)
	}
}

func TestOnlyPermittedAddressesAreDialled(t *testing.T) {
	public, trap, u := publicAndTrap(t)
	s := serveNames(t, always("127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "10.0.0.1"))
	c := s.client(onlySecond, 10*time.Second)
	for range 10 {
		if answer := attempt(t.Context(), t, c, u); answer.Verdict != delivered {
			t.Fatalf("%+v", answer)
		}
	}
	if posts := public.stop(); len(posts) != 10 {
		t.Errorf("%d POSTs", len(posts))
	}
	if trap.stop(); trap.conns != 0 {
		t.Errorf("%d connections to the forbidden address", trap.conns)
	}
}

// TestRebinding: the name answers with a permitted address first and with a forbidden one from then on. Each
// dial checks the address it dials; nothing is cached, nothing is resolved twice for one dial.
func TestRebinding(t *testing.T) {
	public, trap, u := publicAndTrap(t)
	s := serveNames(t, func(_ string, n int) ([]netip.Addr, int) {
		if n == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, 0
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 0
	})
	c := s.client(onlySecond, 10*time.Second)
	if answer := attempt(t.Context(), t, c, u); answer.Verdict != delivered {
		t.Errorf("%+v", answer)
	}
	if notSent := mustNotDial(t, c, u); notSent.Class != failure.RefusedAddress ||
		notSent.Timing.TLS != 0 {
		t.Errorf("%+v", notSent)
	}
	if posts := public.stop(); len(posts) != 1 {
		t.Errorf("%d POSTs", len(posts))
	}
	if trap.stop(); trap.conns != 0 {
		t.Errorf("%d connections to the forbidden address", trap.conns)
	}
}

func TestNamesThatResolveToForbiddenRanges(t *testing.T) {
	for _, ip := range []string{
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.192",
		"192.0.2.1", "192.168.0.1",
		"198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"168.63.129.16",
		"::", "::1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "100::1",
		"2001::1", "2001:db8::1",
		"2002:7f00:1::1", "3fff::1", "fd00:ec2::254", "fe80::1", "ff02::1",
	} {
		s := serveNames(t, always(ip))
		notSent := mustNotDial(t, s.client(nil, 10*time.Second),
			mustURL(t, "https://hooks.example/?token=MARKER"))
		if notSent.Class != failure.RefusedAddress ||
			!strings.Contains(notSent.Detail, "hooks.example may not be reached: ") {
			t.Errorf("%s: %v", ip, notSent)
		}
	}
}

func TestNamesWithoutAnAddress(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		code   int
		detail string
	}{
		"no such name":  {dnsNoName, "has no address"},
		"no addresses":  {0, "has no address"},
		"server failed": {dnsServFail, "the name servers failed to answer"},
		"no answer":     {-1, "did not answer for hooks.example in time"},
	} {
		s := serveNames(t, func(string, int) ([]netip.Addr, int) { return nil, row.code })
		notSent := mustNotDial(t, s.client(loopback, quick), mustURL(t, "https://hooks.example/"))
		if notSent.Class != failure.DNS || !strings.Contains(notSent.Detail, row.detail) ||
			notSent.Timing.DNS <= 0 || notSent.Address != "" {
			t.Errorf("%s: %+v", name, notSent)
		}
		// If the machine's resolv.conf has a search list, an unrooted name would show here.
		if slices.ContainsFunc(s.names(), func(name string) bool { return name != "hooks.example." }) {
			t.Errorf("%s: asked for %q", name, s.names())
		}
	}
}

// TestTheNextAddressIsTried: the first address refuses the connection, the second accepts it.
func TestTheNextAddressIsTried(t *testing.T) {
	public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
	_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
	s := serveNames(t, always("127.0.0.3", "127.0.0.4", "127.0.0.2"))
	u := mustURL(t, "https://hooks.example:"+port+"/")
	answer := attempt(t.Context(), t, s.client(loopback, 10*time.Second), u)
	if answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port {
		t.Errorf("%+v", answer)
	}
}

// TestTheNextAddressIsTriedAfterTLS: the first addresses accept the connection, and no TLS session is made
// with them.
func TestTheNextAddressIsTriedAfterTLS(t *testing.T) {
	t.Parallel()
	public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
	_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
	receiveOn(t, "127.0.0.3:"+port, &tls.Config{Certificates: []tls.Certificate{
		mustIssue(t, localca.Certificate{Hosts: []string{"other.example"}}),
	}}, okAnswer)
	listenOn(t, "127.0.0.4:"+port, "HTTP/1.1 400 Bad Request\r\n\r\n", false)
	listenOn(t, "127.0.0.5:"+port, "", true) // it takes most of the time that is left
	u := mustURL(t, "https://hooks.example:"+port+"/")
	s := serveNames(t, always("127.0.0.3", "127.0.0.4", "127.0.0.2"))
	answer := attempt(t.Context(), t, s.client(loopback, 10*time.Second), u)
	if answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port {
		t.Errorf("%+v", answer)
	}
	s = serveNames(t, always("127.0.0.5", "127.0.0.2"))
	answer = attempt(t.Context(), t, s.client(loopback, 20*time.Second), u)
	if answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port ||
		answer.Timing.TLS <= time.Second {
		t.Errorf("%+v", answer)
	}
	// What an address showed is the reason, although nothing listens at the next.
	s = serveNames(t, always("127.0.0.3", "127.0.0.6"))
	notSent := mustNotDial(t, s.client(loopback, 10*time.Second), u)
	if notSent.Class != failure.TLS || !strings.Contains(notSent.Detail, "is for other.example") ||
		notSent.Address != "127.0.0.3:"+port {
		t.Errorf("%+v", notSent)
	}
}

// TestASilentAddressDelaysOnly: the first address swallows the connection attempt; the second is tried in
// parallel.
func TestASilentAddressDelaysOnly(t *testing.T) {
	t.Parallel()
	public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
	_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
	c := serveNames(t, always("127.0.0.3", "127.0.0.2")).client(loopback, lasting)
	still := holdsOn(callback.Stall(c, "127.0.0.3"))
	answer := attempt(t.Context(), t, c, mustURL(t, "https://hooks.example:"+port+"/"))
	if !still() || answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port {
		t.Errorf("%+v", answer)
	}
}

func TestSilentAddressesAreGivenUp(t *testing.T) {
	t.Parallel()
	c := serveNames(t, always("127.0.0.3")).client(loopback, quick)
	callback.Stall(c, "127.0.0.3")
	notSent := mustNotDial(t, c, mustURL(t, "https://hooks.example/"))
	if notSent.Class != failure.Connect ||
		!strings.Contains(notSent.Detail, "did not accept a connection within 1s") {
		t.Errorf("%+v", notSent)
	}
}
