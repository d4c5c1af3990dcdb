package kept_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
)

const secret = "somebody-elses-token"

func unasked() string {
	return "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + secret
}

// Unsolicited data is never read as the answer to the next request, and is in no log.
func TestUnaskedBytesEndTheConnection(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged) // where net/http would write the data
	t.Cleanup(func() { log.SetOutput(io.Discard) })
	for name, send := range map[string]func(c *link){
		"an answer": func(c *link) { _, _ = io.WriteString(c, unasked()) },
		"a byte":    func(c *link) { _, _ = io.WriteString(c, "H") },
		"a time-out": func(c *link) {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\n\r\n")
		},
		"a record's head":  func(c *link) { _, _ = c.tcp.Write([]byte{23, 3, 3, 0, 40}) },
		"a record's first": func(c *link) { _, _ = c.tcp.Write([]byte{23}) },
		"no TLS":           func(c *link) { _, _ = io.WriteString(c.tcp, unasked()) },
	} {
		idle := make(chan struct{})
		p := newProvider(t, second(func(c *link) {
			<-idle
			send(c)
			c.overhear()
		}))
		c := newClient(t, p)
		c.must(http.MethodPost, "/first")
		close(idle)
		c.arrived()
		c.must(http.MethodPost, "/code")
		if p.handshakes.Load() != 2 || p.begun.Load() != 2 {
			t.Errorf("%s: %d requests on %d connections", name, p.begun.Load(), p.handshakes.Load())
		}
	}
	// in one record with the previous answer, after which nothing arrives any more
	p := newProvider(t, func(n int32, c *link) {
		if n > 0 {
			c.honest()
			return
		}
		path, err := c.request()
		if err == nil {
			_, _ = io.WriteString(c, answer(path)+unasked())
		}
		c.overhear()
	})
	c := newClient(t, p)
	c.must(http.MethodPost, "/first")
	c.must(http.MethodPost, "/code")
	if p.handshakes.Load() != 2 || p.begun.Load() != 2 {
		t.Errorf("in one record: %d requests on %d connections", p.begun.Load(), p.handshakes.Load())
	}
	if strings.Contains(logged.String(), secret) || logged.Len() > 0 {
		t.Errorf("logged: %q", logged.String())
	}
}
