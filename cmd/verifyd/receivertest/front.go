package receivertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"verifyd/dispatcher/callback/localca"
)

// frontDial bounds the connection to a receiver on this machine.
const frontDial = 3 * time.Second

// front speaks TLS on loopback for a receiver that speaks plain HTTP: it passes the bytes unchanged. Its
// certificate is from an authority that exists only as long as the front.
type front struct {
	address  string // of the receiver
	roots    *x509.CertPool
	listener net.Listener

	ctx    context.Context //nolint:containedctx // the life of its connections
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newFront(plain *url.URL) (*front, error) {
	ca, err := localca.New()
	if err != nil {
		return nil, err
	}
	cert, err := ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, fmt.Errorf("listen before the receiver: %w", err)
	}
	port := plain.Port()
	if port == "" {
		port = "80"
	}
	f := &front{address: net.JoinHostPort(plain.Hostname(), port), roots: ca.Pool(), listener: l}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wg.Go(f.accept)
	return f, nil
}

// url returns the address of the front for a URL of the receiver.
func (f *front) url(plain *url.URL) string {
	u := *plain
	u.Scheme, u.Host = "https", f.listener.Addr().String()
	return u.String()
}

// check returns an error unless the receiver listens; through the front it would look as if it hung up.
func (f *front) check(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: frontDial}).DialContext(ctx, "tcp", f.address)
	switch {
	case err == nil:
		return conn.Close()
	case ctx.Err() != nil: // the caller has stopped waiting, which says nothing about the receiver
		return ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s", f.address)
	default:
		return fmt.Errorf("%s could not be connected to: %w", f.address, err)
	}
}

func (f *front) close() {
	f.cancel()
	_ = f.listener.Close()
	f.wg.Wait()
}

func (f *front) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.carry(conn) })
	}
}

// carry copies bytes in both directions until either side ends.
func (f *front) carry(from net.Conn) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer func() { _ = from.Close() }()
	to, err := (&net.Dialer{Timeout: frontDial}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		wg.Go(func() {
			defer cancel()
			_, _ = io.Copy(way[0], way[1])
		})
	}
	wg.Wait()
}
