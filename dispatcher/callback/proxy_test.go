package callback_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
)

func TestATunnelCarriesABurst(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		for version, name := range map[uint16]string{
			tls.VersionTLS12: "TLS 1.2", tls.VersionTLS13: "TLS 1.3",
		} {
			if config != nil {
				config.MinVersion, config.MaxVersion = version, version
			}
			e := startEgress(t, config, nil)
			r := receive(t, &tls.Config{MinVersion: version, MaxVersion: version}, okAnswer)
			c := clientThrough(mustProxy(t, e.value("us%20er:p%3Aw%40@")), time.Minute)
			cn := mustDial(t, c, r.url(t))
			request := mustPrepare(t, c, r.url(t))
			for i := range 5 {
				if !cn.Alive() {
					t.Fatalf("%s: not alive before request %d", name, i)
				}
				answer := cn.Send(t.Context(), request)
				if answer.Verdict != delivered || !answer.Reusable || answer.Body != "ok" ||
					answer.Address != r.listener.Addr().String() {
					t.Fatalf("%s: %+v", name, answer)
				}
				if i == 0 && (answer.Timing.Connect <= 0 || answer.Timing.TLS <= 0) {
					t.Errorf("%s: %+v", name, answer.Timing)
				}
			}
			if err := cn.Close(); err != nil {
				t.Error(err)
			}
			posts := r.stop()
			if len(posts) != 5 || r.conns != 1 {
				t.Errorf("%s: %d POSTs over %d connections", name, len(posts), r.conns)
			}
			for _, post := range posts {
				if post.header.Get("Proxy-Authorization") != "" ||
					!strings.HasPrefix(post.line, "POST /verified") {
					t.Errorf("%s: the receiver got %q with %v", name, post.line, post.header)
				}
			}
			asked := e.requests()
			if len(asked) != 1 || asked[0].Method != http.MethodConnect ||
				asked[0].RequestURI != r.listener.Addr().String() ||
				asked[0].Host != asked[0].RequestURI || asked[0].UserAgent() != "verifyd/test" {
				t.Fatalf("%s: the proxy was asked %v", name, e.targets())
			}
			asked[0].Header.Set("Authorization", asked[0].Header.Get("Proxy-Authorization"))
			if user, password, ok := asked[0].BasicAuth(); !ok || user != "us er" || password != "p:w@" {
				t.Errorf("%s: the proxy got %q, %q", name, user, password)
			}
		}
	})
}

func TestNoCredentialsAreMadeUp(t *testing.T) {
	e := startEgress(t, nil, nil)
	r := receive(t, nil, okAnswer)
	if answer := attempt(t.Context(), t, clientThrough(e.proxy(t), time.Minute),
		r.url(t)); answer.Verdict != delivered {
		t.Errorf("%+v", answer)
	}
	if asked := e.requests(); len(asked) != 1 || len(asked[0].Header) != 1 {
		t.Errorf("the proxy got %v", asked)
	}
}

// TestDeadTunnelsReleaseTheClaim: what happens to an idle tunnel, at either end, is seen before a byte is
// written.
func TestDeadTunnelsReleaseTheClaim(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		for name, row := range map[string]struct {
			idle  func(peer)
			class failure.Class
		}{
			"the receiver closes":             {peer.close, failure.Connect},
			"the receiver resets":             {peer.reset, failure.Connect},
			"the receiver ends TLS":           {func(p peer) { _ = p.Close() }, failure.Connect},
			"the receiver answers beforehand": {okAnswer, failure.Protocol},
			"the receiver leaves TLS": {
				func(p peer) { _, _ = io.WriteString(p.tcp, "HTTP/1.1 200 OK\r\n\r\n") },
				failure.Connect,
			},
			"the proxy cuts the tunnel": {nil, failure.Connect},
		} {
			for _, asked := range []bool{true, false} {
				e := startEgress(t, config, nil)
				idle := make(chan struct{})
				r := receive(t, nil, func(p peer) {
					okAnswer(p)
					<-idle
					if row.idle != nil {
						row.idle(p)
					}
				})
				goOn := sync.OnceFunc(func() { close(idle) })
				t.Cleanup(goOn) // the receiver's end waits for it
				c := clientThrough(e.proxy(t), time.Minute)
				cn := mustDial(t, c, r.url(t))
				if first := cn.Send(t.Context(), mustPrepare(t, c, r.url(t))); !first.Reusable ||
					!cn.Alive() {
					t.Fatalf("%s: %+v", name, first)
				}
				goOn()
				if row.idle == nil {
					e.cut()
				}
				if asked {
					becomeDead(t, cn)
				} else if err := callback.WaitReadable(cn); err != nil {
					t.Fatal(err)
				}
				answer := cn.Send(t.Context(), mustPrepare(t, c, r.url(t)))
				if answer.Verdict != facts.VerdictReleased || answer.Detail == "" || !asked &&
					answer.Class != row.class {
					t.Errorf("%s: %+v", name, answer)
				}
				_ = cn.Close()
				if posts := r.stop(); len(posts) != 1 {
					t.Errorf("%s: %d POSTs", name, len(posts))
				}
				e.stop()
			}
		}
	})
}

// TestWriteThatFailsInATunnel: also below two layers of TLS, what the kernel accepted decides between
// released and unknown.
func TestWriteThatFailsInATunnel(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		for taken, want := range map[int]facts.Verdict{
			0: facts.VerdictReleased, 1: unknown, 100: unknown,
		} {
			e := startEgress(t, config, nil)
			r := receive(t, nil, okAnswer)
			c := clientThrough(e.proxy(t), time.Minute)
			cn := mustDial(t, c, r.url(t))
			callback.CutAfter(cn, taken)
			answer := cn.Send(t.Context(), mustPrepare(t, c, r.url(t)))
			if answer.Verdict != want || answer.Reusable || answer.Detail == "" {
				t.Errorf("%d bytes taken: %+v", taken, answer)
			}
			if again := cn.Send(t.Context(),
				mustPrepare(t, c, r.url(t))); again.Verdict != facts.VerdictReleased {
				t.Errorf("%d bytes taken, sent again: %+v", taken, again)
			}
			_ = cn.Close()
			if posts := r.stop(); len(posts) != 0 {
				t.Errorf("%d bytes taken: %d POSTs", taken, len(posts))
			}
		}
	})
}

// badProxies holds what proxies do instead of opening a tunnel.
var badProxies = []struct {
	name   string
	answer func(egressConn, string)
	class  failure.Class
	detail string
}{
	{"answers 403", says("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n"), failure.Proxy,
		"rules refuse 127.0.0.1: it answered 403 Forbidden"},
	{"answers 407", says("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n"),
		failure.Proxy, "wants other credentials"},
	{"answers 500", says("HTTP/1.1 500 No\r\n\r\n"), failure.Proxy,
		"it answered 500 Internal Server Error"},
	{"answers 404", says("HTTP/1.1 404 No\r\n\r\n"), failure.Proxy, "it answered 404 Not Found"},
	{"answers 302", says("HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1/\r\n\r\n"), failure.Proxy,
		"it answered 302 Found"},
	{"answers 999", says("HTTP/1.1 999 Odd\r\n\r\n"), failure.Proxy, "it answered 999"},
	{"answers 502", says("HTTP/1.1 502 No\r\n\r\n"), failure.Connect,
		"the egress proxy could not reach 127.0.0.1: it answered 502 Bad Gateway"},
	{"answers 503", says("HTTP/1.0 503 No\r\n\r\n"), failure.Connect,
		"the egress proxy could not reach 127.0.0.1: it answered 503"},
	{"answers 504", says("HTTP/1.1 504 No\r\n\r\n"), failure.Connect,
		"the egress proxy could not reach 127.0.0.1: it answered 504"},
	{"answers 100, then 503", says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\n"),
		failure.Connect, "it answered 503"},
	{"answers 403, then hangs in the header", says("HTTP/1.1 403 Forbidden\r\nX-A: b"), failure.Proxy,
		"rules refuse"},
	{"answers 403, then resets",
		func(c egressConn, _ string) { c.say("HTTP/1.1 403 Forbidden\r\n"); c.reset() }, failure.Proxy,
		"rules refuse"},
	{"answers 200, then hangs in the header", says("HTTP/1.1 200 OK\r\nX-A: b\r\n"), failure.Proxy,
		"did not say within 1s whether it reached 127.0.0.1"},
	{"answers 200, then closes in the header",
		func(c egressConn, _ string) { c.say("HTTP/1.1 200 OK\r\nX-A: b\r\n") }, failure.Proxy,
		"closed the connection before it gave a tunnel"},
	{"sends half a status line, then closes", func(c egressConn, _ string) { c.say("HTTP/1.1 20") },
		failure.Proxy, "closed the connection before it gave a tunnel"},
	{"answers 200 with an endless header",
		streams("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("x", 1000)+"\r\n"), failure.Proxy,
		"the egress proxy's header is longer than 65536 bytes"},
	{"answers 200 with one endless line", streams("HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("x", 1000)),
		failure.Proxy, "the egress proxy's header is longer than 65536 bytes"},
	{"sends 103 forever", streams("", "HTTP/1.1 103 Early Hints\r\n\r\n"), failure.Proxy,
		"the egress proxy sent more than 16 informational responses"},
	{"sends an endless 103", streams("HTTP/1.1 103 Early Hints\r\n", "X-A: b\r\n"), failure.Proxy,
		"the egress proxy sent 65536 bytes without a final status line"},
	{"sends an endless status line", streams("HTTP/1.1 200 ", strings.Repeat("O", 1000)), failure.Proxy,
		"the egress proxy's status line is longer than 4096 bytes"},
	{"switches protocols", says("HTTP/1.1 101 Switching Protocols\r\n\r\n"), failure.Proxy,
		"the egress proxy switched protocols"},
	{"sends garbage", says("\x00\x01\x02garbage\n"), failure.Proxy,
		"what the egress proxy sent does not begin with an HTTP/1 status line"},
	{"speaks HTTP/2", says("\x00\x00\x00\x04\x00\x00\x00\x00\x00\n"), failure.Proxy,
		"what the egress proxy sent does not begin with"},
	{"speaks SOCKS", says("\x05\xff\n"), failure.Proxy,
		"what the egress proxy sent does not begin with"},
	{"answers 2OO", says("HTTP/1.1 2OO OK\r\n\r\n"), failure.Proxy,
		"the egress proxy's status line holds no status code"},
	{"never answers", says(), failure.Proxy,
		"the egress proxy did not say within 1s whether it reached 127.0.0.1"},
	{"closes", func(egressConn, string) {}, failure.Proxy,
		"closed the connection before it gave a tunnel"},
	{"resets", func(c egressConn, _ string) { c.reset() }, failure.Proxy,
		"closed the connection before it gave a tunnel"},
}

// streams returns a behaviour that never ends.
func streams(first, more string) func(egressConn, string) {
	return func(c egressConn, _ string) {
		c.say(first)
		for {
			if _, err := io.WriteString(c, more); err != nil {
				return
			}
		}
	}
}

// TestProxiesThatGiveNoTunnel dials through all of them at once: some rows are waits. Nothing reaches the
// receiver.
func TestProxiesThatGiveNoTunnel(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		r := receive(t, nil, okAnswer)
		var dialling sync.WaitGroup
		var proxies []*egress
		for _, row := range badProxies {
			e := startEgress(t, config, row.answer)
			proxies = append(proxies, e)
			proxy, u := mustProxy(t, e.value("user:MARKER@")), r.url(t)
			dialling.Go(func() {
				if !strings.Contains(row.detail, waitsFor(quick)) {
					still := holdsOn(e.stop)
					noTunnel(t, row.name, clientThrough(proxy, lasting), u, row.class, row.detail)
					if !still() {
						t.Errorf("%s: the dial waits until the proxy ends", row.name)
					}
					return
				}
				// a busy machine may need more time to get as far as to ask
				for timeout, over := quick, false; !over; timeout *= 2 {
					cn, err := clientThrough(proxy, timeout).Dial(t.Context(), u)
					if over = err == nil || len(e.requests()) > 0 || timeout >= 8*quick; over {
						wantNoTunnel(t, row.name, cn, err, u, row.class,
							strings.Replace(row.detail, waitsFor(quick), waitsFor(timeout), 1))
					}
				}
			})
		}
		dialling.Wait()
		for i, e := range proxies {
			if !e.isLeft() {
				t.Errorf("%s: the connection to the proxy stays open", badProxies[i].name)
			}
		}
		if posts := r.stop(); len(posts) != 0 || r.conns != 0 {
			t.Errorf("the receiver got %d POSTs over %d connections", len(posts), r.conns)
		}
	})
}

// waitsFor is the error for a proxy that does not answer within the dial's part of an attempt's timeout.
func waitsFor(timeout time.Duration) string { return "within " + (timeout / 2).String() }

// noTunnel dials and checks the NotSent that it must end in.
func noTunnel(t *testing.T, name string, c *callback.Client, u urlpolicy.URL, class failure.Class,
	detail string) {
	t.Helper()
	cn, err := c.Dial(t.Context(), u)
	wantNoTunnel(t, name, cn, err, u, class, detail)
}

func wantNoTunnel(t *testing.T, name string, cn *callback.Conn, err error, u urlpolicy.URL,
	class failure.Class, detail string) {
	t.Helper()
	notSent, ok := errors.AsType[*callback.NotSent](err)
	if !ok {
		if cn != nil {
			_ = cn.Close()
		}
		t.Errorf("%s: %v; want a NotSent", name, err)
		return
	}
	if notSent.Class != class || !strings.Contains(notSent.Detail, detail) || notSent.Detail == "" {
		t.Errorf("%s: %v; want %s: %q", name, notSent, class, detail)
	}
	if notSent.Address != u.HostPort() || notSent.Timing.TLS != 0 || notSent.Timing.Connect <= 0 {
		t.Errorf("%s: %+v", name, notSent)
	}
	if all := fmt.Sprint(notSent, notSent.Err); strings.Contains(all, "MARKER") ||
		strings.Contains(all, "TUFSS0VS") {
		t.Errorf("%s: the password is shown: %s", name, all)
	}
}

// TestProxiesThatCannotBeSpokenTo: failures before the proxy gets a request.
func TestProxiesThatCannotBeSpokenTo(t *testing.T) {
	t.Parallel()
	hold := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	silent := startEgressGreeting(t, nil, hold, nil)
	closing := startEgressGreeting(t, nil, func(net.Conn) {}, nil)
	greeting := startEgressGreeting(t, nil,
		func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n"); hold(c) }, nil)
	plain := startEgress(t, nil, nil)
	secure := startEgress(t, proxyTLS(t, "127.0.0.1"), nil)
	other := startEgress(t, proxyTLS(t, "other.example"), nil)
	stranger, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	strange, err := stranger.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	unknownCA := startEgress(t, &tls.Config{Certificates: []tls.Certificate{strange}}, nil)
	old := proxyTLS(t, "127.0.0.1")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	outdated := startEgress(t, old, nil)
	spdy := proxyTLS(t, "127.0.0.1")
	spdy.NextProtos = []string{"spdy/3"}
	another := startEgress(t, spdy, nil)
	address := func(e *egress) string { return e.listener.Addr().String() }
	r := receive(t, nil, okAnswer)
	names := serveNames(t, func(string, int) ([]netip.Addr, int) { return nil, dnsNoName })
	for name, row := range map[string]struct{ proxy, detail string }{
		"nobody listens": {
			"http://" + closedPort(t),
			"the egress proxy refused the connection: nothing listens on that port",
		},
		"its name does not resolve": {"http://proxy.example:3128", "the egress proxy's name did not resolve"},
		"it hangs":                  {"http://" + address(silent), "did not say within 1s"},
		"it closes":                 {"http://" + address(closing), "the egress proxy closed the connection"},
		"it speaks SSH": {
			"http://" + address(greeting), "does not begin with an HTTP/1 status line",
		},
		"it wants TLS":  {"http://" + address(secure), "the egress proxy"},
		"it has no TLS": {"https://" + address(plain), "the egress proxy"},
		"it hangs before TLS": {
			"https://" + address(silent), "the egress proxy did not finish the TLS handshake in time",
		},
		"it closes before TLS": {
			"https://" + address(closing), "the egress proxy closed the connection during the TLS handshake",
		},
		"it speaks SSH before TLS": {
			"https://" + address(greeting), "what listens on the egress proxy's port does not speak TLS",
		},
		"another's certificate": {
			"https://" + address(other),
			"the egress proxy's certificate is for other.example, not for the host it is configured with",
		},
		"nobody's certificate": {
			"https://" + address(unknownCA), "the egress proxy's certificate is not signed by an authority",
		},
		"another protocol": {"https://" + address(another), "no application protocol"},
		"TLS 1.1 only":     {"https://" + address(outdated), "the egress proxy"},
	} {
		proxy := mustProxy(t, strings.Replace(row.proxy, "://", "://user:MARKER@", 1))
		noTunnel(t, name, names.clientThrough(proxy, loopback, quick), r.url(t), failure.Proxy,
			row.detail)
	}
	for name, e := range map[string]*egress{
		"no TLS": plain, "another's certificate": other, "nobody's certificate": unknownCA,
		"TLS 1.1 only": outdated,
	} {
		if asked := e.targets(); len(asked) != 0 {
			t.Errorf("%s: asked %v, and given the password", name, asked)
		}
	}
	if posts := r.stop(); len(posts) != 0 || r.conns != 0 {
		t.Errorf("the receiver got %d POSTs over %d connections", len(posts), r.conns)
	}
}

// TestTheProxyMayBeNamedAndPrivate: its name is resolved, and no policy applies to its address.
func TestTheProxyMayBeNamedAndPrivate(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
		_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
		e := startEgress(t, config, nil) // on 127.0.0.1, which onlySecond refuses
		names := serveNames(t, func(name string, _ int) ([]netip.Addr, int) {
			return parseAddrs(map[string]string{"proxy.example.": "127.0.0.1",
				"hooks.example.": "127.0.0.2"}[name]), 0
		})
		_, proxyPort, _ := strings.Cut(e.value(""), "127.0.0.1")
		scheme, _, _ := strings.Cut(e.value(""), "127.0.0.1")
		c := names.clientThrough(mustProxy(t, scheme+"proxy.example"+proxyPort), onlySecond, time.Minute)
		answer := attempt(t.Context(), t, c, mustURL(t, "https://hooks.example:"+port+"/"))
		if answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port || answer.Timing.DNS <= 0 {
			t.Errorf("%+v", answer)
		}
		if asked := e.targets(); !slices.Equal(asked, []string{"CONNECT 127.0.0.2:" + port}) {
			t.Errorf("the proxy was asked %v", asked)
		}
	})
}

// TestReceiversBehindAProxy: a failure of the receiver inside the tunnel is reported as the receiver's.
func TestReceiversBehindAProxy(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, config *tls.Config) {
		e := startEgress(t, config, nil)
		c := clientThrough(e.proxy(t), quick)
		other := receive(t, &tls.Config{Certificates: []tls.Certificate{mustIssue(t,
			localca.Certificate{Hosts: []string{"other.example"}})}}, okAnswer)
		for name, row := range map[string]struct {
			address string
			class   failure.Class
			detail  string
		}{
			"another's certificate": {
				other.listener.Addr().String(), failure.TLS,
				"the receiver's certificate is for other.example, not for 127.0.0.1",
			},
			"no TLS": {
				listen(t, "HTTP/1.1 400 Bad Request\r\n\r\n", true), failure.TLS,
				"what listens on the receiver's port does not speak TLS",
			},
			"silent": {
				listen(t, "", true), failure.TLS,
				"the receiver did not finish the TLS handshake in time",
			},
			"closes before TLS": {
				listen(t, "", false), failure.TLS,
				"the receiver closed the connection during the TLS handshake",
			},
			"nobody listens": {
				closedPort(t), failure.Connect,
				"the egress proxy could not reach 127.0.0.5: it answered 503",
			},
		} {
			notSent := mustNotDial(t, c, mustURL(t, "https://"+row.address+"/"))
			if notSent.Class != row.class || !strings.Contains(notSent.Detail, row.detail) ||
				notSent.Address != row.address {
				t.Errorf("%s: %+v", name, notSent)
			}
		}
		for name, row := range map[string]struct {
			answer  func(peer)
			verdict facts.Verdict
			class   failure.Class
		}{
			"resets after the POST":   {peer.reset, unknown, failure.Reset},
			"closes after the POST":   {peer.close, unknown, failure.Reset},
			"ends TLS after the POST": {func(p peer) { _ = p.Close() }, unknown, failure.Reset},
			"never answers":           {func(peer) {}, unknown, failure.Timeout},
			"sends garbage": {
				func(p peer) { p.say("garbage\n") }, unknown, failure.Protocol,
			},
			"leaves TLS": {
				func(p peer) { _, _ = p.tcp.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) }, unknown,
				failure.Protocol,
			},
			"answers 407, as a proxy": {status(407), rejected, failure.Status},
			"answers 502, as a proxy": {status(502), rejected, failure.Status},
			"answers 200, then resets": {
				func(p peer) { p.say("HTTP/1.1 200 OK\r\n"); p.reset() }, delivered, "",
			},
		} {
			r := receive(t, nil, row.answer)
			answer := attempt(t.Context(), t, c, r.url(t))
			if answer.Verdict != row.verdict || answer.Class != row.class {
				t.Errorf("%s: %+v", name, answer)
			}
			if posts := r.stop(); len(posts) != 1 {
				t.Errorf("%s: %d POSTs", name, len(posts))
			}
		}
	})
}

// closedPort returns an address on which no test listens: on a shared one, another test might get the port.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.5:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// TestTheTunnelBeginsRightAfterTheHeader: the answer is read exactly. What a proxy sends after it is never
// part of its header, and never taken for a receiver's answer: it breaks the TLS handshake. The receiver's
// data is complete.
func TestTheTunnelBeginsRightAfterTheHeader(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		for _, answer := range []string{
			established,
			"HTTP/1.0 200\n\n",
			// both mean nothing here
			"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
			strings.Repeat("HTTP/1.1 102 Processing\r\nA: b\r\n\r\n", 16) + "HTTP/1.1 299 Odd\r\nX-Long: " +
				strings.Repeat("x", 10_000) + "\r\n\r\n",
		} {
			e := startEgress(t, config, func(c egressConn, target string) { c.forwardAfter(answer, target) })
			r := receive(t, nil, okAnswer)
			if got := attempt(t.Context(), t, clientThrough(e.proxy(t), time.Minute),
				r.url(t)); got.Verdict != delivered {
				t.Errorf("after %.40q: %+v", answer, got)
			}
		}
		for _, smuggled := range []string{
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\x16\x03\x03\x00\x02\x00\x00",
			"\x15\x03\x03\x00\x02\x01\x00", "\r\n", "x",
		} {
			e := startEgress(t, config, func(c egressConn, target string) {
				c.forwardAfter(established+smuggled, target)
			})
			r := receive(t, nil, okAnswer)
			notSent := mustNotDial(t, clientThrough(e.proxy(t), quick), r.url(t))
			if notSent.Class != failure.TLS {
				t.Errorf("%q behind the header: %+v", smuggled, notSent)
			}
			if posts := r.stop(); len(posts) != 0 {
				t.Errorf("%q behind the header: %d POSTs", smuggled, len(posts))
			}
		}
	})
}

// TestProxyTriesTheNextAddress: a proxy's answer about one address says nothing about the next; its own
// failure does.
func TestProxyTriesTheNextAddress(t *testing.T) {
	public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
	_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
	u := mustURL(t, "https://hooks.example:"+port+"/")
	names := serveNames(t, always("127.0.0.3", "127.0.0.4", "127.0.0.2"))
	// refusing returns a proxy that lets only the third address through.
	refusing := func(answers ...string) *egress {
		return startEgress(t, nil, func(c egressConn, to string) {
			for i, ip := range []string{"127.0.0.3:", "127.0.0.4:"} {
				if strings.HasPrefix(to, ip) {
					if s := answers[min(i, len(answers)-1)]; s != "" {
						c.say("HTTP/1.1 " + s + " X\r\n\r\n")
					}
					return
				}
			}
			c.forward(to)
		})
	}
	for _, code := range []string{"502", "503", "504", "403", "500", "404"} {
		e := refusing(code)
		answer := attempt(t.Context(), t, names.clientThrough(e.proxy(t), loopback, time.Minute), u)
		if answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port {
			t.Errorf("after %s: %+v", code, answer)
		}
		if asked := e.targets(); !slices.Equal(asked, []string{
			"CONNECT 127.0.0.3:" + port, "CONNECT 127.0.0.4:" + port, "CONNECT 127.0.0.2:" + port,
		}) {
			t.Errorf("after %s: the proxy was asked %v", code, asked)
		}
	}
	for _, row := range []struct {
		answers []string
		asked   int
		detail  string
	}{
		{[]string{"407"}, 1, "wants other credentials"},
		{[]string{""}, 1, "closed the connection"},
		// the proxy's own failure is the better explanation
		{[]string{"503", ""}, 2, "closed the connection"},
	} {
		e := refusing(row.answers...)
		notSent := mustNotDial(t, names.clientThrough(e.proxy(t), loopback, time.Minute), u)
		if asked := e.targets(); notSent.Class != failure.Proxy ||
			!strings.Contains(notSent.Detail, row.detail) || len(asked) != row.asked {
			t.Errorf("after %q: %+v, asked %v", row.answers, notSent, asked)
		}
	}
	public.stop()
	// every address fails: an unreachable one explains more than a refused one
	e := startEgress(t, nil, func(c egressConn, to string) {
		c.say(map[bool]string{true: "HTTP/1.1 504 X\r\n\r\n",
			false: "HTTP/1.1 403 X\r\n\r\n"}[strings.HasPrefix(to, "127.0.0.4")])
	})
	notSent := mustNotDial(t, names.clientThrough(e.proxy(t), loopback, time.Minute), u)
	if notSent.Class != failure.Connect || !strings.Contains(notSent.Detail, "504") {
		t.Errorf("%+v", notSent)
	}
}

// TestASilentAddressBehindAProxyDelaysOnly: while the proxy waits for the first address, the second is tried
// in parallel.
func TestASilentAddressBehindAProxyDelaysOnly(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, config *tls.Config) {
		public := receiveOn(t, "127.0.0.2:0", nil, okAnswer)
		_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
		e := startEgress(t, config, func(c egressConn, to string) {
			if strings.HasPrefix(to, "127.0.0.3") {
				c.hold()
				return
			}
			c.forward(to)
		})
		c := serveNames(t, always("127.0.0.3", "127.0.0.2")).clientThrough(e.proxy(t), loopback, lasting)
		still := holdsOn(e.stop)
		answer := attempt(t.Context(), t, c, mustURL(t, "https://hooks.example:"+port+"/"))
		if !still() || answer.Verdict != delivered || answer.Address != "127.0.0.2:"+port {
			t.Errorf("%+v", answer)
		}
	})
}

func TestStoppingWhileTheProxyIsAsked(t *testing.T) {
	bothWays(t, func(t *testing.T, config *tls.Config) {
		ctx, stop := context.WithCancel(t.Context())
		e := startEgress(t, config, func(c egressConn, _ string) { stop(); c.hold() })
		still := holdsOn(e.stop)
		cn, err := clientThrough(e.proxy(t), lasting).Dial(ctx, mustURL(t, "https://"+closedPort(t)+"/"))
		if err == nil {
			_ = cn.Close()
			t.Fatal("dialled")
		}
		notSent, ok := errors.AsType[*callback.NotSent](err)
		if !still() || !ok || notSent.Class != failure.Connect ||
			!strings.HasPrefix(notSent.Detail, "stopped") {
			t.Errorf("%+v", notSent)
		}
	})
}

// TestGuardBehindAProxy offers every hostile URL through a proxy. What it is asked for is counted at the
// proxy itself: nothing but the permitted address, and never a name, which it would resolve again.
func TestGuardBehindAProxy(t *testing.T) {
	rows := guardedURLs()
	conf := &tls.Config{
		Certificates: []tls.Certificate{
			mustIssue(t, localca.Certificate{Hosts: []string{"*.hooks.example"}}),
		},
	}
	public := receiveOn(t, "127.0.0.2:0", conf, okAnswer)
	_, port, _ := strings.Cut(public.listener.Addr().String(), ":")
	asked := 0
	for name, policy := range map[string]*urlpolicy.Policy{
		public.listener.Addr().String():  onlySecond, // plays the public internet
		"nowhere: all of it is loopback": urlpolicy.NewPolicy(nil, nil),
	} {
		e := startEgress(t, nil, func(c egressConn, to string) {
			// without a guard, the rest would be dialled for minutes
			if to != public.listener.Addr().String() {
				c.say("HTTP/1.1 403 Forbidden\r\n\r\n")
				return
			}
			c.forward(to)
		})
		client := zone(t, rows).clientThrough(e.proxy(t), policy, time.Minute)
		for _, row := range rows {
			guardOnce(t, client, policy, row, port)
		}
		for _, target := range e.targets() {
			if asked++; target != "CONNECT "+name {
				t.Errorf("the proxy was asked %s", target)
			}
		}
		if e.conns != len(e.targets()) {
			t.Errorf("%d connections to the proxy for %d requests: refused addresses are to cost none",
				e.conns, len(e.targets()))
		}
	}
	if public.stop(); public.conns == 0 || public.conns != asked {
		t.Errorf("%d connections to the permitted address, %d asked for: the count is not to be trusted",
			public.conns, asked)
	}
	t.Logf("%d hostile URLs under 2 policies: %d CONNECTs, all of them to the permitted address", len(rows),
		asked)
}

// TestRebindingBehindAProxy: the name answers with a permitted address first and with a forbidden one from
// then on.
func TestRebindingBehindAProxy(t *testing.T) {
	public, trap, u := publicAndTrap(t)
	s := serveNames(t, func(_ string, n int) ([]netip.Addr, int) {
		return parseAddrs(map[bool]string{true: "127.0.0.2", false: "127.0.0.1"}[n == 1]), 0
	})
	e := startEgress(t, nil, nil)
	c := s.clientThrough(e.proxy(t), onlySecond, time.Minute)
	if answer := attempt(t.Context(), t, c, u); answer.Verdict != delivered {
		t.Errorf("%+v", answer)
	}
	if notSent := mustNotDial(t, c, u); notSent.Class != failure.RefusedAddress ||
		!strings.Contains(notSent.Detail, "127.0.0.1 is a loopback address") {
		t.Errorf("%+v", notSent)
	}
	if asked := e.targets(); !slices.Equal(asked, []string{"CONNECT " + public.listener.Addr().String()}) {
		t.Errorf("the proxy was asked %v", asked)
	}
	if trap.stop(); trap.conns != 0 {
		t.Errorf("%d connections to the forbidden address", trap.conns)
	}
}

// TestTheEnvironmentNamesNoProxy makes one attempt in a process of its own, since net/http reads these
// variables once in a process's life. The receiver has a name, since proxies of the environment are never
// asked for loopback addresses.
func TestTheEnvironmentNamesNoProxy(t *testing.T) {
	const inside = "CALLBACK_TEST_ENVIRONMENT"
	if os.Getenv(inside) != "" {
		public, _, u := publicAndTrap(t)
		answer := attempt(t.Context(), t, serveNames(t, always("127.0.0.2")).
			client(onlySecond, 10*time.Second), u)
		if posts := public.stop(); answer.Verdict != delivered || len(posts) != 1 {
			t.Errorf("%d POSTs, %+v", len(posts), answer)
		}
		return
	}
	e := startEgress(t, nil, nil)
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"=1")
	for _, name := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
	} {
		again.Env = append(again.Env, name+"="+e.value(""))
	}
	if out, err := again.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v:\n%s", err, out)
	}
	if e.stop(); e.conns != 0 {
		t.Errorf("%d connections to the environment's proxy", e.conns)
	}
}

func TestParseProxy(t *testing.T) {
	for raw, want := range map[string]string{
		"http://proxy.internal:3128":           "egress proxy proxy.internal:3128",
		"https://proxy.internal:3128/":         "egress proxy proxy.internal:3128",
		"HTTP://10.0.0.1:8080":                 "egress proxy 10.0.0.1:8080",
		"http://[fd00::1]:8080":                "egress proxy [fd00::1]:8080",
		"http://user:MARKER@proxy:1":           "egress proxy proxy:1",
		"http://user@proxy:65535":              "egress proxy proxy:65535",
		"https://u:%2F%40%3A%23MARKER@proxy:1": "egress proxy proxy:1",
	} {
		p, err := callback.ParseProxy(raw)
		if err != nil || p.String() != want || strings.Contains(fmt.Sprintf("%v %+v %s", p, p, p), "MARKER") {
			t.Errorf("%s: %v, %v", raw, p, err)
		}
	}
	for raw, want := range map[string]string{
		"proxy:3128":                            "http:// or https://",
		"proxy.internal":                        "http:// or https://",
		"//user:MARKER@proxy:3128":              "http:// or https://",
		"socks5://user:MARKER@proxy:1080":       "http:// or https://",
		"user:MARKER@proxy:3128":                "",
		"http://":                               "no host",
		"http://:3128":                          "no host",
		"http://user:MARKER@:3128":              "no host",
		"http://proxy":                          "no port",
		"http://proxy:":                         "no port",
		"http://proxy:0":                        "no port",
		"http://proxy:65536":                    "no port",
		"http://proxy:http":                     "not a URL",
		"http:proxy:3128":                       "no host",
		"http://user:MARKER@proxy:3128/path":    "after the port",
		"http://user:MARKER@proxy:3128?a=b":     "after the port",
		"http://user:MARKER@proxy:3128?":        "after the port",
		"http://user:MARKER@proxy:3128#a":       "after the port",
		"http://user:MARKER/@proxy:3128":        "",
		"http://user:%zzMARKER@proxy:3128":      "not a URL",
		"http://us%3Aer:MARKER@proxy:3128":      "colon",
		"http://user:MARKER%0d%0aX@proxy:3128":  "control character",
		"http://us%00er:MARKER@proxy:3128":      "control character",
		"http://user:MARKER\r\nX: y@proxy:3128": "not a URL",
		"http://pro xy:3128":                    "not a URL",
		" http://proxy:3128":                    "",
		"":                                      "http:// or https://",
	} {
		p, err := callback.ParseProxy(raw)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "MARKER") ||
			p != nil {
			t.Errorf("%q: %v, %v; want %q", raw, p, err, want)
		}
	}
}
