package dispatcher_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	// hostileTimeout is a whole attempt's at receivers whose attempts only its end ends. Half of it is the
	// dial's: a handshake that takes longer is tried again.
	hostileTimeout = 6 * time.Second
	// hostileRetryFor is how long what was not sent is tried again. It is shorter than the time from a claim
	// to the first byte: the clock is moved on by it, and makes no claim too old.
	hostileRetryFor = 4 * time.Second
	// leastHostile is the documented number of behaviours.
	leastHostile = 24
)

// behaviour is what a hostile receiver does, and how a delivery to it must end.
type behaviour struct {
	name    string
	tls     *tls.Config    // nil: a valid certificate
	raw     func(net.Conn) // instead of TLS
	opened  func(*side)    // after the handshake, before anything is read
	answer  func(*side)    // after each whole request
	state   facts.DeliveryState
	class   failure.Class
	racing  bool // a claim may be made before the failure is seen: then it may end as unknown as well
	nothing bool // nobody listens
	hangs   bool // nothing but its time ends the attempt
}

// resetAfter resets the connection once k bytes of the request's record have arrived.
func resetAfter(k int) behaviour {
	return behaviour{
		name: fmt.Sprintf("resets after %d bytes", k), state: facts.DeliveryUnknown,
		class: failure.Reset,
		opened: func(s *side) {
			if n, _ := io.ReadFull(s.wire, make([]byte, k)); n > 0 {
				s.r.begun.Add(1)
			}
			reset(s.wire)
		},
	}
}

func rejects(code int, header string) behaviour {
	return behaviour{
		name: fmt.Sprintf("answers %d", code), state: facts.DeliveryRejected, class: failure.Status,
		answer: func(s *side) {
			s.say(fmt.Sprintf("HTTP/1.1 %d X\r\n%sContent-Length: 0\r\n\r\n", code, header))
		},
	}
}

func unknown(name string, class failure.Class, answer func(*side)) behaviour {
	return behaviour{name: name, answer: answer, state: facts.DeliveryUnknown, class: class}
}

func delivers(name string, answer func(*side)) behaviour {
	return behaviour{name: name, answer: answer, state: facts.DeliveryDelivered}
}

func undeliverable(name string, conf *tls.Config, raw func(net.Conn)) behaviour {
	return behaviour{
		name: name, tls: conf, raw: raw, state: facts.DeliveryUndeliverable, class: failure.TLS,
		answer: func(*side) {},
	}
}

func hangs(b behaviour) behaviour {
	b.hangs = true
	return b
}

const (
	okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	// RFC 9113 §6.5, §6.8: an empty SETTINGS frame, and GOAWAY with last stream 0 and no error.
	settingsFrame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	goAwayFrame   = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// behaviours returns the table. trap is the target of redirects.
func (h *fixture) behaviours(t *testing.T, trap string, settled <-chan struct{}) []behaviour {
	t.Helper()
	now := time.Now()
	rows := []behaviour{
		// not one byte of a request can leave
		undeliverable("closes before TLS", nil, func(net.Conn) {}),
		undeliverable("resets in the handshake", nil, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			reset(c)
		}),
		hangs(undeliverable("hangs before TLS", nil, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })),
		undeliverable("speaks plain HTTP", nil, func(c net.Conn) {
			_, _ = io.WriteString(c, okAnswer)
			_, _ = io.Copy(io.Discard, c)
		}),
		undeliverable("has a certificate for another host",
			h.certificate(t, localca.Certificate{Hosts: []string{"other.example"}}), nil),
		undeliverable("has an expired certificate",
			h.certificate(t, localca.Certificate{Hosts: hostileHosts(), NotBefore: now.AddDate(0, 0, -2),
				NotAfter: now.AddDate(0, 0, -1)}), nil),
		undeliverable("has a certificate of its own", selfSigned(t), nil),
		undeliverable("speaks TLS 1.0 only",
			&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, nil),
		undeliverable("speaks TLS 1.1 only",
			&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, nil),
		// crypto/tls lets an HTTP/1.1 client through if only h2 is offered, so another protocol is used here.
		undeliverable("refuses HTTP/1.1 in ALPN", &tls.Config{NextProtos: []string{"other/1"}}, nil),
		{name: "does not listen", nothing: true, state: facts.DeliveryUndeliverable,
			class: failure.Connect},
		{name: "resets after the handshake", opened: func(s *side) { reset(s.wire) }, racing: true,
			state: facts.DeliveryUndeliverable, class: failure.Connect},

		// no status line comes back
		unknown("reads all, then closes", failure.Reset, func(s *side) { _ = s.wire.Close() }),
		unknown("reads all, then resets", failure.Reset, func(s *side) { reset(s.wire) }),
		unknown("reads all, then ends TLS", failure.Reset, func(s *side) { _ = s.Close() }),
		hangs(unknown("hangs before the status line", failure.Timeout, func(*side) {})),
		{name: "reads nothing", opened: func(*side) { <-settled }, answer: func(*side) {},
			state: facts.DeliveryUnknown, class: failure.Timeout, hangs: true},
		hangs(unknown("hangs in the status line", failure.Timeout, func(s *side) { s.say("HTTP/1.1 20") })),
		hangs(unknown("says one byte a second", failure.Timeout, func(s *side) {
			s.drip("HTTP/1.1 200 OK")
		})),
		unknown("sends 103 without end", failure.Protocol, func(s *side) {
			s.forever("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		}),
		unknown("sends one 103 without end", failure.Protocol, func(s *side) {
			s.say("HTTP/1.1 103 X\r\n")
			s.forever("X: y\r\n")
		}),
		unknown("switches protocols", failure.Protocol, func(s *side) {
			s.say("HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n")
		}),
		unknown("sends a garbage status line", failure.Protocol, func(s *side) {
			s.say("HTTP/1.1 OK 200\r\n\r\n")
		}),
		unknown("sends garbage without a line", failure.Protocol, func(s *side) {
			s.say("\x00\x01\x02")
			_ = s.Close()
		}),
		unknown("sends a status line without end", failure.Protocol, func(s *side) {
			s.say("HTTP/1.1 200 ")
			s.forever("O")
		}),
		unknown("leaves TLS", failure.Protocol, func(s *side) {
			_, _ = io.WriteString(s.wire, okAnswer)
		}),
		unknown("speaks HTTP/2 only, and sends GOAWAY", failure.Protocol, func(s *side) {
			s.say(settingsFrame + goAwayFrame)
			_ = s.Close()
		}),

		// the status line is the verdict, whatever follows
		{name: "offers h2 and sends GOAWAY on it", tls: &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
			state: facts.DeliveryDelivered, answer: func(s *side) {
				if s.ConnectionState().NegotiatedProtocol == "h2" {
					s.say(settingsFrame + goAwayFrame)
					return
				}
				s.say(okAnswer)
			}},
		delivers("hangs in the header", func(s *side) { s.say("HTTP/1.1 200 OK\r\nX-A: b\r\n") }),
		delivers("hangs in the body", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
		}),
		delivers("sends a header of 1 MiB", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")
		}),
		delivers("sends header lines without end", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\n")
			s.forever("X-A: b\r\n")
		}),
		delivers("sends a body of 10 MiB", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n") // before a body that takes a while
			s.say(strings.Repeat("x", 10<<20))
		}),
		delivers("sends a body of one byte a second", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n")
			s.drip("x")
		}),
		delivers("resets after the status line", func(s *side) {
			s.say("HTTP/1.1 200 OK\r\n")
			reset(s.wire)
		}),
		delivers("answers twice", func(s *side) { s.say(okAnswer + okAnswer) }),
	}
	for _, k := range []int{1, 4, 5, 6, 21, 64, 128, 256, 320} { // 5 bytes are the header of a TLS record
		rows = append(rows, resetAfter(k))
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		rows = append(rows, rejects(code, "Location: https://"+trap+"/elsewhere\r\n"))
	}
	for _, code := range []int{400, 404, 408, 410, 425, 429, 500, 503} {
		rows = append(rows, rejects(code, "Retry-After: 1\r\n"))
	}
	return rows
}

// hostileHosts returns an address for each row, and more.
func hostileHosts() []string {
	hosts := make([]string, 100)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("127.0.3.%d", i+1)
	}
	return hosts
}

func (h *fixture) certificate(t *testing.T, c localca.Certificate) *tls.Config {
	t.Helper()
	cert, err := h.ca.Issue(c)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
}

// selfSigned makes a certificate that no authority has signed.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().
				Add(time.Hour),
	}
	for _, host := range hostileHosts() {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(host))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestHostileReceivers sends to all of them at once. Each gets at most one request, each delivery ends in the
// right state by its own worker, and no worker is left. Those that hang have a dispatcher and a store of
// their own: its short time ends none of the others' handshakes and answers.
func TestHostileReceivers(t *testing.T) {
	t.Parallel()
	h, hung := start(t), newFixture(t)
	hung.ca, hung.timeout = h.ca, hostileTimeout
	hung.open(t, natstest.Start(t))
	hosts, settled := hostileHosts(), make(chan struct{})
	end := sync.OnceFunc(func() { close(settled) })
	good := h.certificate(t, localca.Certificate{Hosts: hosts})
	trap := startRaw(t, behaviour{answer: func(s *side) { s.say(okAnswer) }}, hosts[len(hosts)-1]+":0", good,
		settled)
	rows := h.behaviours(t, trap.listener.Addr().String(), settled)
	if len(rows) < leastHostile || len(rows) >= len(hosts) {
		t.Fatalf("%d behaviours; at least %d are promised, and %d addresses are there", len(rows),
			leastHostile, len(hosts))
	}
	receivers := make([]*rawReceiver, len(rows))
	for i, row := range rows {
		conf := good
		if row.tls != nil {
			conf = row.tls.Clone()
		}
		if conf.Certificates == nil {
			conf.Certificates = good.Certificates
		}
		receivers[i] = startRaw(t, row, hosts[i]+":0", conf, settled)
	}
	t.Cleanup(end) // runs before the receivers' own, which wait for it
	var stops []func()
	var registries []*prometheus.Registry
	for _, f := range []*fixture{h, hung} {
		f.stand()
		config, metrics := f.config(), prometheus.NewRegistry()
		config.RetryFor, config.Metrics = hostileRetryFor, metrics
		config.Random = func() float64 { return 0 } // the shortest pauses
		stops, registries = append(stops, f.dispatch(t, config)), append(registries, metrics)
	}
	by := func(row behaviour) *fixture {
		if row.hangs {
			return hung
		}
		return h
	}
	ids := make([]sessions.ID, len(rows))
	var completing sync.WaitGroup
	for i, row := range rows {
		completing.Go(func() { ids[i] = by(row).complete(t, receivers[i].url(), "u", verified).ID })
	}
	completing.Wait()
	views := make([]facts.View, len(rows))
	for _, last := range []bool{false, true} {
		for i, row := range rows {
			if last == (row.state == facts.DeliveryUndeliverable) {
				views[i] = by(row).untilSettled(t, ids[i])
			}
		}
		// Everybody who gets a request has got one: the others are given up.
		h.offset.Store(int64(hostileRetryFor))
		hung.offset.Store(int64(hostileRetryFor))
	}
	for i, metrics := range registries {
		untilGauge(t, metrics, "verifyd_deliveries_held", 0)
		untilGauge(t, metrics, "verifyd_deliveries_in_flight", 0)
		stops[i]()
	}
	end()
	for i := range rows {
		receivers[i].check(t, views[i])
	}
	if n := trap.conns.Load(); n != 0 {
		t.Errorf("%d connections to where redirects lead", n)
	}
	t.Logf("%d behaviours", len(rows))
}

// check compares the outcome of a delivery, and what its receiver saw, with the behaviour.
func (r *rawReceiver) check(t *testing.T, v facts.View) {
	t.Helper()
	_ = r.listener.Close()
	r.wg.Wait() // the dispatcher has closed its side of each connection: what it sent is read to the end
	a := v.Delivery.Attempts
	last := a[len(a)-1]
	right := v.Delivery.State == r.b.state && last.Result.Class == r.b.class
	if r.b.racing && v.Delivery.State == facts.DeliveryUnknown {
		right = last.Result.Class == failure.Reset
	}
	if !right {
		t.Errorf("%s: %s, class %q (%s); want %s, class %q", r.b.name, v.Delivery.State, last.Result.Class,
			last.Result.Detail, r.b.state, r.b.class)
	}
	want := int64(1)
	if r.b.state == facts.DeliveryUndeliverable {
		want = 0
	}
	if n := r.begun.Load(); n != want || r.whole.Load() > n {
		t.Errorf("%s: %d requests begun, %d whole; want %d", r.b.name, n, r.whole.Load(), want)
	}
	if last.Result.By != last.Claim.Worker || last.Result.At.After(last.Claim.SettleAfter) {
		t.Errorf("%s: settled by %s at %s; claimed by %s until %s", r.b.name, last.Result.By, last.Result.At,
			last.Claim.Worker, last.Claim.SettleAfter)
	}
}

// untilGauge waits for a gauge of the dispatcher to reach a value.
func untilGauge(t *testing.T, from prometheus.Gatherer, name string, want float64) {
	t.Helper()
	natstest.Await(t, fmt.Sprintf("%s is %v", name, want), func() bool {
		return gauge(t, from, name) == want
	})
}

// A receiver that closes each connection as soon as it has answered gets every callback once: a kept
// connection is checked before its next claim.
func TestIdleConnectionsClosedAtOnce(t *testing.T) {
	h := start(t)
	h.stand()
	closed := make(chan struct{})
	conf := h.certificate(t, localca.Certificate{Hosts: []string{"127.0.0.1"}})
	r := startRaw(t, behaviour{answer: func(s *side) {
		s.say(okAnswer)
		_ = s.Close()
		closed <- struct{}{}
	}}, "127.0.0.1:0", conf, nil)
	h.dispatch(t, h.config())
	const n = 10
	for range n {
		c := h.complete(t, r.url(), "u", verified)
		natstest.Receive(t, "the receiver has answered", closed)
		if v := h.until(t, c.ID, facts.DeliveryDelivered); len(v.Delivery.Attempts) != 1 {
			t.Errorf("attempts = %+v", v.Delivery.Attempts)
		}
	}
	if r.begun.Load() != n || r.conns.Load() != n {
		t.Errorf("%d requests over %d connections; want %d", r.begun.Load(), r.conns.Load(), n)
	}
}
