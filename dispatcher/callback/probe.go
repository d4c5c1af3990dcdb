package callback

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Probe is a callback that tries a receiver, with what is unusual or wrong about it. A delivery is never a
// Probe: a Probe goes out through the same guard and the same client, but no other rule of deliveries holds
// for it.
type Probe struct {
	Callback

	Method   string              // POST when empty; others have no body
	Unsigned bool                // without the three headers of a signature
	Headers  map[string]string   // sent in addition
	Change   func([]byte) []byte // changes the body after it was signed
	// Pieces and Pause send the request slowly: in this many pieces, with a pause before each but the first.
	Pieces int
	Pause  time.Duration
}

// PrepareProbe makes the exact bytes of a probe. Errors are those of Prepare.
func (c *Client) PrepareProbe(p Probe) (Request, error) {
	r, err := c.Prepare(p.Callback)
	if err != nil {
		return Request{}, err
	}
	head, body, _ := strings.Cut(string(r.bytes), "\r\n\r\n")
	if p.Change != nil {
		body = string(p.Change([]byte(body)))
	}
	lines := strings.Split(head, "\r\n")
	if p.Method != "" && p.Method != http.MethodPost {
		lines[0] = p.Method + strings.TrimPrefix(lines[0], http.MethodPost)
		lines, body = without(lines, "Content-Type", "Content-Length"), ""
	}
	if p.Unsigned {
		lines = without(lines, HeaderID, HeaderTimestamp, HeaderSignature)
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "Content-Length: ") {
			lines[i] = "Content-Length: " + strconv.Itoa(len(body))
		}
	}
	for name, value := range p.Headers {
		lines = append(lines, name+": "+value)
	}
	r.bytes = []byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + body)
	r.pieces, r.pause = p.Pieces, p.Pause
	return r, nil
}

// without returns the lines of a header except those of the named fields.
func without(lines []string, names ...string) []string {
	return slices.DeleteFunc(lines, func(line string) bool {
		name, _, _ := strings.Cut(line, ":")
		return slices.Contains(names, name)
	})
}

// writeTo hands the request over: whole, in one write, unless it is a slow probe.
func (r Request) writeTo(w io.Writer) error {
	rest := r.bytes
	for left := r.pieces; left > 1 && len(rest) > left; left-- {
		n := len(rest) / left
		if _, err := w.Write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
		<-time.After(r.pause) // an aborted attempt closes the connection, which ends the next write
	}
	_, err := w.Write(rest)
	return err
}
