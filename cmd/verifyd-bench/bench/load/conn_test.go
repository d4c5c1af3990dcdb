package load

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		raw, body, location, cookie, fault string
		status                             int
		closing                            bool
	}{
		"with a length": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello",
		},
		"empty": {
			raw: "HTTP/1.1 303 See Other\r\nLocation: /x?a=b\r\ncontent-length: 0\r\n\r\n", status: 303,
			location: "/x?a=b",
		},
		"no content":      {raw: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
		"bare line feeds": {raw: "HTTP/1.1 200 OK\ncontent-length: 1\n\nx", status: 200, body: "x"},
		"chunked": {
			raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
				"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
			status: 200, body: "hello0123456789",
		},
		"cookie": {
			raw:    "HTTP/1.1 200 OK\r\nSet-Cookie: a=b=c; Path=/; HttpOnly\r\nContent-Length: 0\r\n\r\n",
			status: 200, cookie: "a=b=c",
		},
		"closing": {
			raw: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status: 200,
			closing: true,
		},
		"body cut": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", fault: "unexpected EOF",
		},
		"header cut": {raw: "HTTP/1.1 200 OK\r\nContent-Le", fault: "unexpected EOF"},
		"nothing":    {raw: "", fault: "unexpected EOF"},
		"chunk cut": {
			raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", fault: "unexpected EOF",
		},
		"last chunk cut": {
			raw:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
			fault: "unexpected EOF",
		},
		"chunk too long": {
			raw:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
			fault: "a chunk does not end",
		},
		"chunk without size": {
			raw:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
			fault: "not the size of a chunk",
		},
		"no length": {raw: "HTTP/1.1 200 OK\r\n\r\nhello", fault: "without a length"},
		"bad length": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", fault: "content-length",
		},
		"huge length": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", fault: "content-length",
		},
		"huge chunk": {
			raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n", fault: "more than",
		},
		"HTTP/1.0": {
			raw: "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", fault: "not a status line",
		},
		"garbage":   {raw: "hello, who are you?\r\n\r\n", fault: "not a status line"},
		"no status": {raw: "HTTP/1.1 abc\r\n\r\n", fault: "not a status line"},
		"interim":   {raw: "HTTP/1.1 103 Early Hints\r\n\r\n", fault: "interim"},
		"a name is not a start": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length-X: 9\r\nX-Content-Length: 8\r\n" +
				"Content-Length: 1\r\n\r\nx",
			status: 200, body: "x",
		},
	} {
		for way, reader := range map[string]io.Reader{
			"at once":      strings.NewReader(row.raw),
			"byte by byte": iotest.OneByteReader(strings.NewReader(row.raw)),
		} {
			a, _, err := readAnswer(bufio.NewReader(reader), nil)
			if row.fault != "" {
				if err == nil || !strings.Contains(err.Error(), row.fault) {
					t.Errorf("%s, %s: error %v, want %q", name, way, err, row.fault)
				}
				continue
			}
			if err != nil || a.Status != row.status || string(a.Body) != row.body ||
				a.Location != row.location || a.Cookie != row.cookie || a.closing != row.closing {
				t.Errorf("%s, %s: %+v %q, %v", name, way, a, a.Body, err)
			}
		}
	}
}

// A broken connection is reopened by the next exchange; an unsolicited answer is never taken for the next
// one.
func TestConnectionIsReopened(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := []string{
		"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 2",
		"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, text := range answers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	c := NewConn(l.Addr().String())
	defer c.Close()
	request := Request("GET", c.address, "/", "", "")
	for i, want := range []string{"", "unexpected EOF", "more came than one answer", ""} {
		if i == 1 {
			c.Close() // the first exchange went well, so its connection was kept
		}
		a, err := c.Do(t.Context(), request)
		if want == "" && (err != nil || a.Status != 204) || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("exchange %d: %+v, %v, want %q", i, a, err, want)
		}
		if (err != nil) != (c.nc == nil) {
			t.Errorf("exchange %d: error %v, connection kept %t", i, err, c.nc != nil)
		}
	}
	if _, err := NewConn("127.0.0.1:1").Do(t.Context(), request); err == nil ||
		!strings.Contains(err.Error(), "connect") || errors.Is(err, io.EOF) {
		t.Errorf("nobody there: %v", err)
	}
}
