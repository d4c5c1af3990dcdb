package callback

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	// everything up to the end of the final header, informational responses included
	maxHeaderBytes = 64 << 10
	// read: a receiver that sends more than this loses its connection, nothing else
	maxBodyBytes     = 4 << 10
	maxKeptBytes     = 1 << 10     // kept of the body, for people
	maxLineBytes     = 4 << 10     // a status line
	maxInformational = 16          // 1xx responses: one is usual, a handful is conceivable
	answerGrace      = time.Second // for headers and body once the verdict has fallen: a worker waits for it

	// maxRetryAfter keeps a hostile Retry-After from overflowing; deliveries have given up long before.
	maxRetryAfter = 24 * time.Hour
)

// Answer is how an attempt ended.
type Answer struct {
	Verdict facts.Verdict // delivered, rejected, unknown; released if not one byte was written
	Class   failure.Class // empty when delivered
	Status  int           // the final status; 0 if none was read
	Detail  string        // one sentence for people, in lower case; empty when delivered
	// the first 1 KiB of the answer's body, made valid UTF-8; the code that shows it escapes it
	Body string
	// what Retry-After asks for (RFC 9110 §10.2.3), at most a day; 0 if it is absent
	RetryAfter time.Duration
	Timing     facts.Timing // with the dial's steps if the connection was dialled for this attempt
	Address    string       // the address dialled, ip:port
	Reusable   bool         // the connection may carry another request
}

// Released returns how an attempt ended of which not one byte was written, and why.
func Released(class failure.Class, detail string) Answer {
	return Answer{Verdict: facts.VerdictReleased, Class: class, Detail: detail}
}

// answerOf judges a final status.
func answerOf(status int) Answer {
	switch {
	case status >= 200 && status <= 299:
		return Answer{Verdict: facts.VerdictDelivered, Status: status}
	case status >= 300 && status <= 399:
		detail := fmt.Sprintf("the receiver answered %s; redirects are not followed", statusText(status))
		return Answer{
			Verdict: facts.VerdictRejected, Class: failure.Status, Status: status, Detail: detail,
		}
	}
	return Answer{
		Verdict: facts.VerdictRejected, Class: failure.Status, Status: status,
		Detail: "the receiver answered " + statusText(status),
	}
}

func statusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// protocolError reports that the answer is not HTTP/1, or is more of it than is read.
type protocolError struct{ detail string }

func (e *protocolError) Error() string { return e.detail }

// reader reads one answer.
type reader struct {
	from     string            // theReceiver or theProxy
	limit    *io.LimitedReader // what may still be taken from the connection
	buf      *bufio.Reader
	began    bool // something has come back
	line     []byte
	status   int
	trailing bool // something has come after the whole answer
}

func newReader(r io.Reader, from string) *reader {
	limit := &io.LimitedReader{R: r, N: maxHeaderBytes}
	return &reader{from: from, limit: limit, buf: bufio.NewReaderSize(limit, maxLineBytes)}
}

// awaitByte waits for the first byte of the answer.
func (r *reader) awaitByte() error {
	_, err := r.buf.Peek(1)
	r.began = err == nil
	return err
}

// readStatus reads up to and with the final status line, skipping informational responses (RFC 9110 §15.2).
// Errors are a *protocolError or the connection's.
func (r *reader) readStatus() error {
	for range maxInformational + 1 {
		line, err := r.buf.ReadSlice('\n')
		if err != nil {
			if !mayBecomeStatusLine(line) {
				return r.fault(notStatusLine) // however it ended: HTTP/2 frames hold no line end to wait for
			}
			return r.bounded(err)
		}
		status, wrong := parseStatusLine(line)
		if wrong != "" {
			return r.fault(wrong)
		}
		if status >= 200 {
			r.line, r.status = bytes.Clone(line), status
			return nil
		}
		if status == http.StatusSwitchingProtocols {
			return r.fault("%s switched protocols without having been asked to")
		}
		if err := r.skipHeader(); err != nil {
			return r.bounded(err)
		}
	}
	return r.fault("%s sent more than %d informational responses", maxInformational)
}

// fault returns a *protocolError whose text begins with the sender.
func (r *reader) fault(format string, args ...any) error {
	return &protocolError{fmt.Sprintf(format, append([]any{r.from}, args...)...)}
}

// bounded distinguishes a bound of ours from the connection's own end.
func (r *reader) bounded(err error) error {
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return r.fault("%s's status line is longer than %d bytes", maxLineBytes)
	case errors.Is(err, io.EOF) && r.limit.N <= 0 && r.status != 0:
		return r.fault("%s's header is longer than %d bytes", maxHeaderBytes)
	case errors.Is(err, io.EOF) && r.limit.N <= 0:
		return r.fault("%s sent %d bytes without a final status line", maxHeaderBytes)
	}
	return err
}

// skipHeader reads the field lines of a response and the empty line after them.
func (r *reader) skipHeader() error {
	for whole := true; ; {
		line, err := r.buf.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if whole && len(withoutEnd(line)) == 0 {
			return nil
		}
		whole = err == nil // a piece of a long line is no empty line
	}
}

// withoutEnd removes the end of a line, as net/http does: LF with at most one CR before it (RFC 9112 §2.2).
func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

const (
	statusLinePrefix = "HTTP/1."
	notStatusLine    = "what %s sent does not begin with an HTTP/1 status line"
)

// mayBecomeStatusLine reports whether the first piece of a line could still be a status line's.
func mayBecomeStatusLine(piece []byte) bool {
	n := min(len(piece), len(statusLinePrefix))
	return string(piece[:n]) == statusLinePrefix[:n]
}

// parseStatusLine reads "HTTP/1.x SP 3DIGIT [SP reason]" (RFC 9112 §4), or returns what is wrong, with %s for
// the sender. Codes above 599 count as final, as RFC 9110 §15 advises.
func parseStatusLine(line []byte) (status int, wrong string) {
	rest, ok := strings.CutPrefix(string(withoutEnd(line)), statusLinePrefix)
	if !ok || len(rest) < 5 || !isDigit(rest[0]) || rest[1] != ' ' || len(rest) > 5 && rest[5] != ' ' {
		return 0, notStatusLine
	}
	code := rest[2:5]
	if code[0] < '1' || code[0] > '9' || !isDigit(code[1]) || !isDigit(code[2]) {
		return 0, "%s's status line holds no status code"
	}
	return int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0'), ""
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// readRest reads header and body, as far as they come within their bounds, for the answer's details. No error
// is possible: the verdict has fallen, and a part that cannot be read costs only the connection.
func (r *reader) readRest(a *Answer) {
	again := bufio.NewReader(io.MultiReader(bytes.NewReader(r.line), r.buf))
	response, err := http.ReadResponse(again, &http.Request{Method: http.MethodPost})
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }() // reads on, within the same bounds
	a.RetryAfter = retryAfter(response.Header)
	r.limit.N = maxBodyBytes
	body, whole := readBody(response.Body)
	a.Body = PrintableBody(string(body))
	r.trailing = whole && again.Buffered()+r.buf.Buffered() > 0
	a.Reusable = whole && !r.trailing && !response.Close && response.ProtoAtLeast(1, 1)
}

// PrintableBody bounds the beginning of an answer, and makes it valid UTF-8.
func PrintableBody(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxKeptBytes)], "\uFFFD")
}

// readBody reads at most maxBodyBytes and reports whether that was the whole body.
func readBody(body io.Reader) (read []byte, whole bool) {
	read = make([]byte, 0, maxBodyBytes)
	for len(read) < cap(read) {
		n, err := body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		if err != nil {
			return read, errors.Is(err, io.EOF)
		}
	}
	return read, false
}

// retryAfter reads seconds or an HTTP date (RFC 9110 §10.2.3); a value that is neither asks for nothing. A
// date is compared with the receiver's own (§6.6.1), as long as it sends one.
func retryAfter(h http.Header) time.Duration {
	wait, field := time.Duration(0), h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(field, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(field); err == nil {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
