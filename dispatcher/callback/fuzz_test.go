package callback

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"verifyd/sessions/facts"
)

// tap counts the bytes read from a connection.
type tap struct {
	io.Reader
	taken int
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.taken += n
	return n, err
}

// readAnswer reads an answer as a callback's is read.
func readAnswer(r io.Reader) (Answer, *reader, error) {
	in := newReader(r, theReceiver)
	if err := in.readStatus(); err != nil {
		return Answer{}, in, err
	}
	a := answerOf(in.status)
	in.readRest(&a)
	return a, in, nil
}

// finalStatus reads the final status as net/http reads each line of status: informational responses first,
// whose field lines are skipped as they are. head is how many bytes there are up to the end of its header; 0
// if that has no end. The status is 0 if net/http does not read one.
func finalStatus(wire []byte) (status, head int) {
	rest := wire
	line := func() (text []byte, ok bool) {
		text, rest, ok = bytes.Cut(rest, []byte("\n"))
		return bytes.TrimSuffix(text, []byte("\r")), ok
	}
	fields := func() bool {
		for {
			if text, ok := line(); !ok || len(text) == 0 {
				return ok
			}
		}
	}
	for {
		text, ok := line()
		if !ok {
			return 0, 0
		}
		text = append(bytes.Clone(text), "\r\n\r\n"...)
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
		if err != nil {
			return 0, 0
		}
		_ = response.Body.Close()
		whole := fields()
		switch {
		case response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols && whole:
		case response.StatusCode < 200:
			return 0, 0
		case whole:
			return response.StatusCode, len(wire) - len(rest)
		default:
			return response.StatusCode, 0
		}
	}
}

var plainAnswer = regexp.MustCompile(`^HTTP/1\.[01] ([2-9][0-9][0-9]) [ -~]{0,100}\r?\n`)

var answers = []string{
	"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 300 M\r\n\r\n", "HTTP/1.1 204\n\n",
	"HTTP/1.0 503 Busy\r\nA: b\r\n\r\n",
	"HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 101 X\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
	"HTTP/1.1  200 OK\r\n\r\n", "", "\r\n", "HTTP/1.1 20", "HTTP/1.1 200\r\r\n\r\n",
	"HTTP/1.1 103 Hints\r\n\r\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n",
	"HTTP/1.1 429 Slow\r\nRetry-After: 99999999\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n",
	strings.Repeat("HTTP/1.1 100 C\r\n\r\n", 20) + "HTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxHeaderBytes/6) + "\r\n",
}

// net/http reads an answer that we accept, above all as delivered, with the same status, however the bytes
// were split on their way. No more is read than the bounds say.
func FuzzAnswer(f *testing.F) {
	for _, seed := range answers {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		from := &tap{Reader: bytes.NewReader(wire)}
		a, in, err := readAnswer(from)
		if from.taken > maxHeaderBytes+maxBodyBytes {
			t.Fatalf("%d bytes are taken", from.taken)
		}
		status, _ := finalStatus(wire)
		if m := plainAnswer.FindSubmatch(wire); m != nil && a.Status == 0 {
			t.Fatalf("%q is no answer: %v", m[0], err)
		}
		cut, _, cutErr := readAnswer(iotest.OneByteReader(bytes.NewReader(wire)))
		if cut.Verdict != a.Verdict || cut.Status != a.Status || cut.Body != a.Body ||
			(cutErr == nil) != (err == nil) {
			t.Fatalf("%q is %+v, %v; byte by byte %+v, %v", wire, a, err, cut, cutErr)
		}
		if err != nil {
			var garbage *protocolError
			if in.status != 0 || !errors.As(err, &garbage) && !errors.Is(err, io.EOF) {
				t.Fatalf("status %d beside %v", in.status, err)
			}
			return
		}
		if status != a.Status || a.Status < 200 || a.Status > 999 ||
			(a.Verdict == facts.VerdictDelivered) != (status >= 200 && status <= 299) {
			t.Fatalf("%q: %s, %d; net/http reads %d", wire, a.Verdict, a.Status, status)
		}
		if len(a.Body) > 3*maxKeptBytes || a.RetryAfter < 0 || a.RetryAfter > maxRetryAfter {
			t.Fatalf("%+v", a)
		}
	})
}

// A tunnel is open if the proxy's status is a success, as net/http reads it, and what is read of the
// connection ends with its header: the next byte is the receiver's.
func FuzzProxyAnswer(f *testing.F) {
	for _, seed := range answers {
		f.Add([]byte(seed))
	}
	f.Add([]byte("HTTP/1.1 200 Connection established\r\nContent-Length: 5\r\n\r\n\x16\x03\x01"))
	f.Add([]byte("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"))
	g := &gateway{proxy: &Proxy{authorization: "Basic eA=="}, agent: "verifyd"}
	to := netip.MustParseAddrPort("[2001:db8::1]:443")
	f.Fuzz(func(t *testing.T, wire []byte) {
		from := &tap{Reader: bytes.NewReader(wire)}
		var sent bytes.Buffer
		status, err := g.ask(struct {
			io.Reader
			io.Writer
		}{from, &sent}, to)
		want, head := finalStatus(wire)
		switch {
		case from.taken > maxHeaderBytes:
			t.Fatalf("%d bytes are taken", from.taken)
		case err != nil && status != 0:
			t.Fatalf("status %d beside %v", status, err)
		case err == nil && status != want:
			t.Fatalf("%q: %d; net/http reads %d", wire, status, want)
		case err == nil && status <= 299 && from.taken != head:
			t.Fatalf("%q: %d bytes are taken, the header has %d", wire, from.taken, head)
		}
		request, rerr := http.ReadRequest(bufio.NewReader(&sent))
		if rerr != nil || request.Method != http.MethodConnect || request.Host != to.String() ||
			sent.Len() > 0 {
			t.Fatalf("the proxy was asked %+v, %v", request, rerr)
		}
	})
}
