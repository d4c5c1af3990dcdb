package callback

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzReadStatus holds our reading of status lines against net/http's: what we call final, it reads with the
// same status.
func FuzzReadStatus(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204\n\n", "HTTP/1.0 503 Busy\r\nA: b\r\n\r\n",
		"HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 101 X\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n", "", "\r\n", "HTTP/1.1 20",
		strings.Repeat("HTTP/1.1 100 C\r\n\r\n", 20) + "HTTP/1.1 200 OK\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := newReader(bytes.NewReader(wire), theReceiver)
		if err := in.readStatus(); err != nil {
			var garbage *protocolError
			if in.status != 0 || !errors.As(err, &garbage) && !errors.Is(err, io.EOF) {
				t.Fatalf("status %d beside %v", in.status, err)
			}
			return
		}
		if in.status < 200 || in.status > 999 {
			t.Fatalf("status %d is not final", in.status)
		}
		bare := bytes.TrimRight(in.line, "\r\n")
		theirs, err := http.ReadResponse(
			bufio.NewReader(io.MultiReader(bytes.NewReader(bare), strings.NewReader("\r\n\r\n"))), nil)
		if err == nil {
			_ = theirs.Body.Close()
			if theirs.StatusCode != in.status {
				t.Fatalf("%q: we read %d, net/http %d", in.line, in.status, theirs.StatusCode)
			}
		}
		answer := answerOf(in.status)
		in.readRest(&answer)
		if answer.Status != in.status || len(answer.Body) > 3*maxKeptBytes {
			t.Fatalf("%+v", answer)
		}
	})
}

func TestInterleaveAlternatesFamilies(t *testing.T) {
	for given, want := range map[string]string{
		"1.1.1.1":                         "1.1.1.1",
		"2::1 2::2 1.1.1.1 1.1.1.2 2::3":  "2::1 1.1.1.1 2::2 1.1.1.2 2::3",
		"1.1.1.1 1.1.1.2 1.1.1.3 2::1":    "1.1.1.1 2::1 1.1.1.2 1.1.1.3",
		"::ffff:1.1.1.1 2::1 1.1.1.2":     "1.1.1.1 2::1 1.1.1.2",
		"2::1 ::ffff:127.0.0.1":           "2::1 127.0.0.1",
		"1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4": "1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4",
	} {
		if got := interleave(parse(given)); !slices.Equal(got, parse(want)) {
			t.Errorf("%s became %v; want %s", given, got, want)
		}
	}
}

func parse(s string) []netip.Addr {
	var ips []netip.Addr
	for word := range strings.FieldsSeq(s) {
		ips = append(ips, netip.MustParseAddr(word))
	}
	return ips
}
