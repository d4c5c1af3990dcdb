package callback_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	delivered = facts.VerdictDelivered
	rejected  = facts.VerdictRejected
	unknown   = facts.VerdictUnknown
)

// hostile holds receivers' behaviours after they have read the whole request.
var hostile = []struct {
	name    string
	answer  func(peer)
	verdict facts.Verdict
	class   failure.Class
	status  int
}{
	// no status line
	{"reads all, then closes", peer.close, unknown, failure.Reset, 0},
	{"reads all, then resets", peer.reset, unknown, failure.Reset, 0},
	{"reads all, then ends TLS", func(p peer) { _ = p.Close() }, unknown, failure.Reset, 0},
	{"never answers", func(peer) {}, unknown, failure.Timeout, 0},
	{"sends half a status line, then hangs", func(p peer) { p.say("HTTP/1.1 20") }, unknown,
		failure.Timeout, 0},
	{"sends a status line without its end, then hangs", func(p peer) { p.say("HTTP/1.1 200 OK") }, unknown,
		failure.Timeout, 0},
	{"drips one byte at a time", drip, unknown, failure.Timeout, 0},
	{"sends half a status line, then closes", func(p peer) { p.say("HTTP/1.1 20"); p.close() }, unknown,
		failure.Reset, 0},
	{"sends 100, then hangs", func(p peer) { p.say("HTTP/1.1 100 Continue\r\n\r\n") }, unknown,
		failure.Timeout, 0},
	{"sends 103 forever", forever("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), unknown,
		failure.Protocol, 0},
	{"sends an endless 103", func(p peer) {
		p.say("HTTP/1.1 103 Early Hints\r\n")
		forever("X-Hint: " + strings.Repeat("x", 1000) + "\r\n")(p)
	}, unknown, failure.Protocol, 0},
	{"sends an endless status line", func(p peer) { p.say("HTTP/1.1 200 "); forever("O")(p) }, unknown,
		failure.Protocol, 0},
	{"switches protocols", func(p peer) { p.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n") },
		unknown, failure.Protocol, 0},
	{"sends garbage", func(p peer) { p.say("\x00\x01\x02garbage\n") }, unknown, failure.Protocol, 0},
	{"sends an empty line", func(p peer) { p.say("\r\n") }, unknown, failure.Protocol, 0},
	{"sends HTML alone", func(p peer) { p.say("<html>200 OK</html>\n") }, unknown, failure.Protocol, 0},
	{"sends SSH's greeting", func(p peer) { p.say("SSH-2.0-OpenSSH_9.9\r\n") }, unknown,
		failure.Protocol, 0},
	{"sends a status in letters", func(p peer) { p.say("HTTP/1.1 2OO OK\r\n\r\n") }, unknown,
		failure.Protocol, 0},
	{"sends a status of four digits", func(p peer) { p.say("HTTP/1.1 2000 OK\r\n\r\n") }, unknown,
		failure.Protocol, 0},
	{"sends status 099", func(p peer) { p.say("HTTP/1.1 099 Odd\r\n\r\n") }, unknown, failure.Protocol,
		0},
	{"sends a negative status", func(p peer) { p.say("HTTP/1.1 -20 Odd\r\n\r\n") }, unknown,
		failure.Protocol, 0},
	{"claims HTTP/2.0 in text", func(p peer) { p.say("HTTP/2.0 200 OK\r\n\r\n") }, unknown,
		failure.Protocol, 0},
	{"speaks HTTP/2 and sends GOAWAY", http2GoAway, unknown, failure.Protocol, 0},
	{"speaks HTTP/2 and closes, without one line end",
		func(p peer) { p.say("\x00\x00\x00\x04\x00\x00\x00\x00\x00"); p.close() }, unknown,
		failure.Protocol, 0},
	{"sends garbage without a line end, then hangs", func(p peer) { p.say("HTTP/2") }, unknown,
		failure.Protocol, 0},
	{"leaves TLS", func(p peer) { _, _ = p.tcp.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) }, unknown,
		failure.Protocol, 0},

	// a status line, then a failure
	{"answers 200, then hangs in the header", func(p peer) { p.say("HTTP/1.1 200 OK\r\nX-A: b\r\n") },
		delivered, "", 200},
	{"answers 200, then hangs in the body",
		func(p peer) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab") }, delivered, "", 200},
	{"answers 200, then resets", func(p peer) { p.say("HTTP/1.1 200 OK\r\n"); p.reset() }, delivered, "",
		200},
	{"answers 200 with a header of 1 MiB", func(p peer) {
		p.say("HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 1<<20) + "\r\n\r\n")
	}, delivered, "", 200},
	{"answers 200 with endless header lines",
		func(p peer) { p.say("HTTP/1.1 200 OK\r\n"); forever("X-A: b\r\n")(p) }, delivered, "", 200},
	{"answers 200 with a body of 10 MiB", func(p peer) {
		p.say("HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n")
		forever(strings.Repeat("x", 1<<16))(p)
	}, delivered, "", 200},
	{"answers 200 with endless chunks", func(p peer) {
		p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		forever("1\r\nx\r\n")(p)
	}, delivered, "", 200},
	{"answers 200 with a broken header", func(p peer) { p.say("HTTP/1.1 200 OK\r\n: :\r\n\r\n") }, delivered,
		"", 200},
	{"answers 200 with two lengths",
		func(p peer) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n") },
		delivered, "", 200},
	{"answers 500, then hangs", func(p peer) { p.say("HTTP/1.1 500 No\r\n") }, rejected, failure.Status,
		500},

	// odd but complete
	{"answers 200 twice", func(p peer) { okAnswer(p); okAnswer(p) }, delivered, "", 200},
	{"answers 204 after three informational ones", func(p peer) {
		p.say(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 3) + "HTTP/1.1 204 No Content\r\n\r\n")
	}, delivered, "", 204},
	{"answers 200 after sixteen informational ones", informational(16), delivered, "", 200},
	{"answers 200 after seventeen informational ones", informational(17), unknown, failure.Protocol, 0},
	{"answers 100, then 503", func(p peer) {
		p.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
	}, rejected, failure.Status, 503},
	{"answers in HTTP/1.0 with bare line feeds", func(p peer) { p.say("HTTP/1.0 200 OK\n\nok"); p.close() },
		delivered, "", 200},
	{"answers without a reason", func(p peer) { p.say("HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n") },
		delivered, "", 299},
	{"answers 999", func(p peer) { p.say("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n") }, rejected,
		failure.Status, 999},
	{"answers 301", redirect(301), rejected, failure.Status, 301},
	{"answers 302", redirect(302), rejected, failure.Status, 302},
	{"answers 303", redirect(303), rejected, failure.Status, 303},
	{"answers 307", redirect(307), rejected, failure.Status, 307},
	{"answers 308", redirect(308), rejected, failure.Status, 308},
	{"answers 400", status(400), rejected, failure.Status, 400},
	{"answers 410", status(410), rejected, failure.Status, 410},
	{"answers 425", status(425), rejected, failure.Status, 425},
	{"answers 429", status(429), rejected, failure.Status, 429},
	{"answers 500", status(500), rejected, failure.Status, 500},
}

// TestHostileReceiversGetOnePostAndTheRightVerdict dials them all, then sends to all at once: most rows are
// waits.
func TestHostileReceiversGetOnePostAndTheRightVerdict(t *testing.T) {
	c := newClient(quick)
	receivers := make([]*receiver, len(hostile))
	answers := make([]callback.Answer, len(hostile))
	var sending sync.WaitGroup
	for i, row := range hostile {
		receivers[i] = receive(t, nil, row.answer)
		u := receivers[i].url(t)
		cn, request := mustDial(t, c, u), mustPrepare(t, c, u)
		sending.Go(func() {
			answers[i] = cn.Send(t.Context(), request)
			_ = cn.Close()
		})
	}
	still := holdsOn(func() {
		for _, r := range receivers {
			r.stop()
		}
	})
	sending.Wait()
	if !still() {
		t.Fatal("a worker is held until its receiver ends")
	}
	longest := time.Duration(0)
	for i, row := range hostile {
		got := answers[i]
		longest = max(longest, got.Timing.Total)
		if got.Verdict != row.verdict || got.Class != row.class || got.Status != row.status {
			t.Errorf("%s: got %s/%s %d (%s)", row.name, got.Verdict, got.Class, got.Status, got.Detail)
		}
		if (got.Detail == "") != (row.verdict == delivered) || strings.Contains(got.Detail, "MARKER") {
			t.Errorf("%s: detail %q", row.name, got.Detail)
		}
		if posts := receivers[i].stop(); len(posts) != 1 {
			t.Errorf("%s: %d POSTs received", row.name, len(posts))
		}
	}
	t.Logf("figures: with a timeout of %s a worker was held for at most %s", quick, longest)
}

// TestAnswerCutAtEveryByte resets the connection after k bytes of the answer: unknown before the status
// line's end, delivered from there on.
func TestAnswerCutAtEveryByte(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"
	statusLine := strings.Index(whole, "\n") + 1
	c := newClient(time.Minute)
	for k := range len(whole) {
		r := receive(t, nil, func(p peer) {
			if k > 0 {
				p.say(whole[:k])
			}
			p.reset()
		})
		answer := attempt(t.Context(), t, c, r.url(t))
		want, class := unknown, failure.Reset
		if k >= statusLine {
			want, class = delivered, failure.None
		}
		if answer.Verdict != want || answer.Class != class || answer.Reusable {
			t.Errorf("cut after %d bytes: %+v", k, answer)
		}
		if posts := r.stop(); len(posts) != 1 {
			t.Errorf("cut after %d bytes: %d POSTs received", k, len(posts))
		}
	}
}

// TestTheVerdictDoesNotWaitForTheRest: with hours for the whole attempt, a receiver that hangs after its
// status line gets only the grace, and still hangs when the attempt is over.
func TestTheVerdictDoesNotWaitForTheRest(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"} {
		r := receive(t, nil, func(p peer) { p.say(said) })
		still := holdsOn(func() { r.stop() })
		answer := attempt(t.Context(), t, newClient(lasting), r.url(t))
		if !still() || answer.Verdict != delivered {
			t.Errorf("after %q: %+v", said, answer)
		}
	}
}

func TestStoppingEndsAnAttemptAtOnce(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r := receive(t, nil, func(peer) { stop() })
	still := holdsOn(func() { r.stop() })
	answer := attempt(ctx, t, newClient(lasting), r.url(t))
	if !still() || answer.Verdict != unknown || answer.Class != failure.Timeout {
		t.Errorf("%+v", answer)
	}
}

func TestStoppingAfterTheStatusLineKeepsTheVerdict(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := receive(t, nil, func(p peer) {
		p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		stop()
	})
	// Whether the status line or the stop is seen first is a race; both verdicts are true, and no other is.
	still := holdsOn(func() { r.stop() })
	answer := attempt(ctx, t, newClient(lasting), r.url(t))
	if !still() || answer.Verdict != delivered && answer.Verdict != unknown || answer.Reusable {
		t.Errorf("%+v", answer)
	}
}

// TestClientCertificateDemandedAfterTheHandshake: in TLS 1.3 the client learns of such a refusal only when
// it reads, after the request has left.
func TestClientCertificateDemandedAfterTheHandshake(t *testing.T) {
	r := receive(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}, okAnswer)
	c := newClient(quick)
	cn := mustDial(t, c, r.url(t))
	answer := cn.Send(t.Context(), mustPrepare(t, c, r.url(t)))
	early := answer.Verdict == facts.VerdictReleased && answer.Class == failure.Connect
	if !early && (answer.Verdict != unknown || answer.Class != failure.Reset ||
		!strings.HasSuffix(answer.Detail, "certificate required; it has asked for a client certificate, and "+
			"verifyd has none")) {
		t.Errorf("%+v", answer)
	}
	if posts := r.stop(); len(posts) != 0 {
		t.Errorf("%d POSTs received", len(posts))
	}
}

func TestRetryAfter(t *testing.T) {
	for field, want := range map[string][2]time.Duration{
		"120": {2 * time.Minute, 2 * time.Minute}, "0": {}, "": {}, "soon": {}, "-5": {}, "1.5": {},
		"99999999999999999999": {},
		"4000000000":           {24 * time.Hour, 24 * time.Hour},
		time.Now().Add(10 * time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"): {
			9 * time.Minute, 10 * time.Minute,
		},
		"Thu, 01 Jan 1970 00:00:00 GMT": {},
		// by the receiver's own date, if there is one
		"Thu, 01 Jan 1970 00:05:00 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT": {
			5 * time.Minute, 5 * time.Minute,
		},
	} {
		r := receive(t, nil, func(p peer) {
			p.say("HTTP/1.1 503 Busy\r\nRetry-After: " + field + "\r\nContent-Length: 4\r\n\r\nbusy")
		})
		answer := attempt(t.Context(), t, newClient(time.Minute), r.url(t))
		if answer.Status != 503 || answer.RetryAfter < want[0] || answer.RetryAfter > want[1] ||
			answer.Body != "busy" {
			t.Errorf("Retry-After %q: %+v", field, answer)
		}
	}
}

func TestAnswerIsCutAndMadeText(t *testing.T) {
	r := receive(t, nil, func(p peer) {
		p.say("HTTP/1.1 400 Bad\r\nContent-Length: 2000\r\n\r\n\xff<b>" + strings.Repeat("é", 998))
	})
	answer := attempt(t.Context(), t, newClient(time.Minute), r.url(t))
	if !strings.HasPrefix(answer.Body, "\uFFFD<b>éé") || len(answer.Body) < 1000 ||
		len(answer.Body) > 1024+6 || !answer.Reusable {
		t.Errorf("%d bytes %.20q, reusable %v", len(answer.Body), answer.Body, answer.Reusable)
	}
}

func drip(p peer) {
	for _, b := range []byte("HTTP/1.1 200 " + strings.Repeat("O", 1000)) {
		if _, err := p.Write([]byte{b}); err != nil {
			return
		}
		<-time.After(20 * time.Millisecond) // a pace, not a wait: no outcome depends on it
	}
}

func forever(s string) func(peer) {
	return func(p peer) {
		for {
			if _, err := io.WriteString(p, s); err != nil {
				return
			}
		}
	}
}

func http2GoAway(p peer) {
	// SETTINGS
	p.say("\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	// GOAWAY, last stream 0
	p.say("\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\r\n\r\n")
}

func status(code int) func(peer) {
	return func(p peer) { p.say(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", code)) }
}

func informational(n int) func(peer) {
	return func(p peer) { p.say(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", n)); okAnswer(p) }
}

func redirect(code int) func(peer) {
	return func(p peer) {
		p.say(fmt.Sprintf("HTTP/1.1 %d X\r\nLocation: https://%s/elsewhere\r\nContent-Length: 0\r\n\r\n",
			code, p.LocalAddr()))
	}
}
