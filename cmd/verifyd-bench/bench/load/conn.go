package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// AnswerWithin bounds one exchange: what takes longer counts as an error.
	AnswerWithin = 15 * time.Second
	// readBytes holds the whole answer to an init; pages take several reads.
	readBytes = 8 << 10
	// maxBodyBytes is far more than any page of the service has.
	maxBodyBytes = 1 << 20
)

// Conn is one client with one connection that is kept alive. It speaks only as much HTTP/1.1 as the
// generator needs: net/http's client would cost more than some of the servers it is to measure. It belongs to
// one goroutine.
type Conn struct {
	address string
	tls     *tls.Config // nil: without TLS
	nc      net.Conn
	in      *bufio.Reader
	body    []byte
}

// NewConn returns a client of an address. It connects with the first request.
func NewConn(address string) *Conn { return &Conn{address: address} }

// NewTLSConn returns a client as NewConn does, over TLS.
func NewTLSConn(address string, config *tls.Config) *Conn {
	return &Conn{address: address, tls: config}
}

// Answer is what a server answered.
type Answer struct {
	Status   int
	Body     []byte // complete; valid until the next exchange
	Location string
	Cookie   string // name=value of the last Set-Cookie
	closing  bool   // the server ends the connection
}

// Do writes a prepared request and reads the answer. After an error the connection is closed, and the next
// call makes a new one.
func (c *Conn) Do(ctx context.Context, request []byte) (Answer, error) {
	if err := c.dial(ctx); err != nil {
		return Answer{}, err
	}
	a, err := c.exchange(request)
	if err != nil || a.closing {
		c.Close()
	}
	return a, err
}

func (c *Conn) dial(ctx context.Context) error {
	if c.nc != nil {
		return nil
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if c.tls != nil { // its handshake is made with the first request, whose deadline holds for it
		nc = tls.Client(nc, c.tls)
	}
	c.nc = nc
	if c.in == nil {
		c.in = bufio.NewReaderSize(nc, readBytes)
	}
	c.in.Reset(nc)
	return nil
}

func (c *Conn) exchange(request []byte) (Answer, error) {
	if err := c.nc.SetDeadline(time.Now().Add(AnswerWithin)); err != nil {
		return Answer{}, fmt.Errorf("set the deadline: %w", err)
	}
	if _, err := c.nc.Write(request); err != nil {
		return Answer{}, fmt.Errorf("write the request: %w", err)
	}
	a, body, err := readAnswer(c.in, c.body[:0])
	c.body = body
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	if c.in.Buffered() > 0 {
		return Answer{}, errors.New("read the answer: more came than one answer")
	}
	return a, nil
}

// Close ends the connection; the next exchange makes a new one.
func (c *Conn) Close() {
	if c.nc != nil {
		_ = c.nc.Close()
		c.nc = nil
	}
}

// readAnswer reads one final answer (RFC 9112 §4, §6), with its body appended to into.
func readAnswer(in *bufio.Reader, into []byte) (a Answer, body []byte, err error) {
	if a.Status, err = readStatus(in); err != nil {
		return a, into, err
	}
	f, err := readFields(in, &a)
	if err != nil {
		return a, into, err
	}
	body = into
	switch {
	case a.Status < 200:
		return a, body, fmt.Errorf("an interim answer, %d, that nobody asked for", a.Status)
	case a.Status == 204 || a.Status == 304: // RFC 9112 §6.3: no body, whatever the fields say
	case f.chunked:
		body, err = readChunks(in, into)
	case f.length < 0:
		err = errors.New("an answer without a length")
	default:
		body, err = readBody(in, into, f.length)
	}
	a.Body = body
	return a, body, err
}

func readStatus(in *bufio.Reader) (int, error) {
	line, err := readLine(in)
	if err != nil {
		return 0, err
	}
	version := []byte("HTTP/1.1 ")
	if len(line) < len(version)+3 || !bytes.HasPrefix(line, version) {
		return 0, fmt.Errorf("%q is not a status line", line)
	}
	status, err := strconv.Atoi(string(line[len(version) : len(version)+3]))
	if err != nil || status < 100 {
		return 0, fmt.Errorf("%q is not a status line", line)
	}
	return status, nil
}

// fields are the header fields that say how long the body is.
type fields struct {
	length  int // -1: not given
	chunked bool
}

func readFields(in *bufio.Reader, a *Answer) (fields, error) {
	f := fields{length: -1}
	for {
		line, err := readLine(in)
		if err != nil || len(line) == 0 {
			return f, err
		}
		if err := f.read(line, a); err != nil {
			return f, err
		}
	}
}

// read takes in one header line.
func (f *fields) read(line []byte, a *Answer) error {
	if v, ok := field(line, "content-length"); ok {
		n, err := strconv.Atoi(string(v))
		if err != nil || n < 0 || n > maxBodyBytes {
			return fmt.Errorf("content-length %q", v)
		}
		f.length = n
	}
	if v, ok := field(line, "transfer-encoding"); ok {
		f.chunked = bytes.EqualFold(v, []byte("chunked"))
	}
	if v, ok := field(line, "connection"); ok {
		a.closing = bytes.EqualFold(v, []byte("close"))
	}
	if v, ok := field(line, "location"); ok {
		a.Location = string(v)
	}
	if v, ok := field(line, "set-cookie"); ok {
		a.Cookie, _, _ = strings.Cut(string(v), ";")
	}
	return nil
}

// field returns the value of a header line with this name, which is in lower case.
func field(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' ||
		!strings.EqualFold(string(line[:len(name)]), name) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// readLine returns a line without its end; it is valid until the next read.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

func readBody(in *bufio.Reader, into []byte, n int) ([]byte, error) {
	if len(into)+n > maxBodyBytes {
		return into, fmt.Errorf("a body of more than %d bytes", maxBodyBytes)
	}
	start := len(into)
	into = append(into, make([]byte, n)...) // grows in place once it has been as large
	_, err := io.ReadFull(in, into[start:])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return into, err
}

func readChunks(in *bufio.Reader, into []byte) ([]byte, error) {
	for {
		line, err := readLine(in)
		if err != nil {
			return into, err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(size), 16, 31)
		if err != nil {
			return into, fmt.Errorf("%q is not the size of a chunk", line)
		}
		if into, err = readBody(in, into, int(n)); err != nil {
			return into, err
		}
		if line, err = readLine(in); err != nil || len(line) > 0 {
			return into, errors.Join(err, errors.New("a chunk does not end where it said"))
		}
		if n == 0 {
			// nothing that is measured here sends trailers: the line was the empty one
			return into, nil
		}
	}
}

// Request returns the bytes of a request. header consists of whole lines; if there is a body, its length is
// added.
func Request(method, address, target, header, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, target, address, header)
	if method == "POST" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}
