package callback_test

import (
	"context"
	"crypto/tls"
	"io"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/natstest"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// becomeDead waits until the connection is no longer alive, which takes as long as the receiver's bytes take
// to arrive.
func becomeDead(t *testing.T, cn *callback.Conn) {
	t.Helper()
	natstest.Await(t, "the connection is dead", func() bool { return !cn.Alive() })
}

func TestOneConnectionCarriesABurst(t *testing.T) {
	for version, name := range map[uint16]string{tls.VersionTLS12: "TLS 1.2", tls.VersionTLS13: "TLS 1.3"} {
		r := receive(t, &tls.Config{MinVersion: version, MaxVersion: version}, okAnswer)
		c := newClient(time.Minute)
		cn := mustDial(t, c, r.url(t))
		request := mustPrepare(t, c, r.url(t))
		for i := range 5 {
			if !cn.Alive() {
				t.Fatalf("%s: not alive before request %d", name, i)
			}
			answer := cn.Send(t.Context(), request)
			if answer.Verdict != delivered || !answer.Reusable || answer.Body != "ok" {
				t.Fatalf("%s: %+v", name, answer)
			}
			if dialled := answer.Timing.TLS > 0; dialled != (i == 0) {
				t.Errorf("%s: request %d has the dial's times: %+v", name, i, answer.Timing)
			}
		}
		if err := cn.Close(); err != nil {
			t.Error(err)
		}
		if err := cn.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if posts := r.stop(); len(posts) != 5 || r.conns != 1 {
			t.Errorf("%s: %d POSTs over %d connections", name, len(posts), r.conns)
		}
	}
}

// TestAnswersThatEndTheConnection: after data that may be the next answer no request may be sent.
func TestAnswersThatEndTheConnection(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
		"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
	} {
		r := receive(t, nil, func(p peer) { p.say(answer) })
		c := newClient(time.Minute)
		cn := mustDial(t, c, r.url(t))
		if got := cn.Send(t.Context(), mustPrepare(t, c, r.url(t))); got.Verdict != delivered ||
			got.Reusable {
			t.Errorf("after %q: %+v", answer, got)
		}
		if cn.Alive() {
			t.Errorf("alive after %q", answer)
		}
		if again := cn.Send(t.Context(),
			mustPrepare(t, c, r.url(t))); again.Verdict != facts.VerdictReleased {
			t.Errorf("second request after %q: %+v", answer, again)
		}
		_ = cn.Close()
		if posts := r.stop(); len(posts) != 1 {
			t.Errorf("after %q: %d POSTs", answer, len(posts))
		}
	}
}

// TestDeadConnectionsReleaseTheClaim: what a receiver does to an idle connection is seen before a byte is
// written.
func TestDeadConnectionsReleaseTheClaim(t *testing.T) {
	for name, row := range map[string]struct {
		idle  func(peer)
		class failure.Class
	}{
		"closes":             {peer.close, failure.Connect},
		"resets":             {peer.reset, failure.Connect},
		"ends TLS":           {func(p peer) { _ = p.Close() }, failure.Connect},
		"answers beforehand": {okAnswer, failure.Protocol},
		"leaves TLS": {
			func(p peer) { _, _ = io.WriteString(p.tcp, "HTTP/1.1 200 OK\r\n\r\n") }, failure.Connect,
		},
	} {
		for _, asked := range []bool{true, false} {
			idle := make(chan struct{})
			r := receive(t, nil, func(p peer) {
				okAnswer(p)
				<-idle
				row.idle(p)
			})
			goOn := sync.OnceFunc(func() { close(idle) })
			t.Cleanup(goOn) // the receiver's end waits for it
			c := newClient(time.Minute)
			cn := mustDial(t, c, r.url(t))
			if first := cn.Send(t.Context(), mustPrepare(t, c, r.url(t))); !first.Reusable || !cn.Alive() {
				t.Fatalf("%s: %+v", name, first)
			}
			goOn()
			if asked {
				becomeDead(t, cn)
			} else {
				if err := callback.WaitReadable(cn); err != nil {
					t.Fatal(err)
				}
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
		}
	}
}

func TestNothingIsSentForAnotherDestination(t *testing.T) {
	r, other := receive(t, nil, okAnswer), receive(t, nil, okAnswer)
	c := newClient(time.Minute)
	cn := mustDial(t, c, r.url(t))
	for _, request := range []callback.Request{mustPrepare(t, c, other.url(t)), {}} {
		if answer := cn.Send(t.Context(), request); answer.Verdict != facts.VerdictReleased ||
			answer.Detail == "" {
			t.Errorf("%+v", answer)
		}
	}
	if posts := append(r.stop(), other.stop()...); len(posts) != 0 {
		t.Errorf("%d POSTs", len(posts))
	}
}

// TestWriteThatFails: the count of bytes that the kernel accepted decides between released and unknown, byte
// by byte.
func TestWriteThatFails(t *testing.T) {
	c := newClient(time.Minute)
	for taken, want := range map[int]facts.Verdict{
		0: facts.VerdictReleased, 1: unknown, 5: unknown, 100: unknown,
	} {
		r := receive(t, nil, okAnswer)
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
}

func TestStoppedBeforeTheWriteIsReleased(t *testing.T) {
	r := receive(t, nil, okAnswer)
	c := newClient(time.Minute)
	cn := mustDial(t, c, r.url(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if answer := cn.Send(ctx, mustPrepare(t, c, r.url(t))); answer.Verdict != facts.VerdictReleased ||
		answer.Class != failure.Late {
		t.Errorf("%+v", answer)
	}
	_ = cn.Close()
	if posts := r.stop(); len(posts) != 0 {
		t.Errorf("%d POSTs", len(posts))
	}
}

func TestTLSSessionsResume(t *testing.T) {
	r := receive(t, nil, okAnswer)
	c := newClient(time.Minute)
	for i := range 2 {
		cn := mustDial(t, c, r.url(t))
		if callback.DidResume(cn) != (i > 0) {
			t.Errorf("dial %d: resumed %v", i, callback.DidResume(cn))
		}
		if !cn.Alive() {
			t.Fatalf("dial %d: not alive", i)
		}
		cn.Send(t.Context(), mustPrepare(t, c, r.url(t)))
		_ = cn.Close()
	}
}
