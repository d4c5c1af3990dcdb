package servers_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/secured"
	"verifyd/natsconf/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count returns how many lines have all these words.
func (j *journal) count(words ...string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}

const (
	unusable = "a NATS server cannot be used"
	expired  = "certificate has expired"
)

// A server whose certificate has expired is refused at the next connection. Why is known while there is no
// connection, is logged once, and again if it happens another time.
func TestExpiredCertificateIsTheReason(t *testing.T) {
	t.Parallel()
	at, log := secured.Start(t), &journal{}
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: at.URL, RootCAs: at.Roots, Log: zerolog.New(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Serve(t, conn.Servers)
	shown := func() (expires time.Time) {
		if all := conn.Servers.Certificates(); len(all) == 1 && all[0].Of == at.Address() {
			expires = all[0].Expires
		}
		return expires
	}
	natstest.Await(t, "its certificate is known", func() bool { return !shown().IsZero() })
	for round := 1; round <= 2; round++ {
		until := at.Renew(t, -time.Hour)
		at.Disconnect(t, conn)
		natstest.Await(t, "the reason is known", func() bool {
			err := conn.Servers.Unusable()
			return err != nil && strings.Contains(err.Error(), expired)
		})
		if conn.Connected() {
			t.Fatal("connected to a server whose certificate has expired")
		}
		conn.Servers.Look(t.Context())
		conn.Servers.Look(t.Context())
		if n := log.count(unusable, expired, at.Address()); n != round {
			t.Errorf("the reason was logged %d times, want %d", n, round)
		}
		if !shown().Equal(until) {
			t.Errorf("the expired certificate counts until %s, want %s", shown(), until)
		}
		back := conn.Back()
		until = at.Renew(t, time.Hour)
		natstest.Receive(t, "the connection comes back", back)
		conn.Servers.Look(t.Context())
		if err := conn.Servers.Unusable(); err != nil || !shown().Equal(until) {
			t.Errorf("with a new certificate: %v, until %s, want %s", err, shown(), until)
		}
	}
	if log.count(secured.Password) != 0 {
		t.Error("the log has the password")
	}
}

// A connection that stands does not show that its server's certificate was renewed, or expires: a look does.
func TestRenewalIsSeenByALook(t *testing.T) {
	t.Parallel()
	at := secured.Start(t)
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: at.URL, RootCAs: at.Roots, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	until := at.Renew(t, 5*time.Hour)
	conn.Servers.Look(t.Context())
	if all := conn.Servers.Certificates(); len(all) != 1 || !all[0].Expires.Equal(until) ||
		all[0].Expires.Sub(all[0].From) != 90*24*time.Hour {
		t.Errorf("%+v, want one until %s", all, until)
	}
	if !conn.Connected() {
		t.Error("the look has ended the connection")
	}
}

// Each server has its own reason, whichever the client would report; none names a password.
func TestEachServerHasItsReason(t *testing.T) {
	t.Parallel()
	at, log, nobody := secured.Start(t), &journal{}, natstest.Address(t)
	urls := strings.Join([]string{
		"tls://verifyd:" + secured.Password + "@" + nobody,
		strings.Replace(at.URL, "verifyd:", "somebody:", 1),
	}, ",")
	s := servers.New(urls, none, zerolog.New(log))
	s.Look(t.Context())
	err := s.Unusable()
	if err == nil || !strings.Contains(err.Error(), nobody+": ") ||
		!strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), at.Address()+": ") ||
		!strings.Contains(err.Error(), "unknown authority") {
		t.Fatalf("%v", err)
	}
	if log.count(unusable) != 2 || log.count(secured.Password) != 0 ||
		strings.Contains(err.Error(), secured.Password) {
		t.Errorf("%v; the log: %s", err, log.text.String())
	}
}

// A reason that names another port each time is logged once.
func TestVaryingReasonIsLoggedOnce(t *testing.T) {
	t.Parallel()
	at := speak(t, "INFO {}", func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the close is a reset
		}
	})
	log := &journal{}
	s := servers.New("nats://"+at, none, zerolog.New(log))
	seen := map[string]bool{}
	for range 3 {
		s.Look(t.Context())
		seen[s.Unusable().Error()] = true
	}
	if n := log.count(unusable); len(seen) != 3 || n != 1 {
		t.Errorf("%d lines of %q", n, slices.Collect(maps.Keys(seen)))
	}
}

// A server of a cluster that lets nobody in is not taken for another one, which it names.
func TestServerIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	answer := func(line string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "%s\r\n", line)
			_, _ = c.Read(make([]byte, 1)) // until the client leaves
		}
	}
	open := speak(t, "INFO {}", answer("PONG"))
	closed := speak(t, fmt.Sprintf(`INFO {"connect_urls":[%q]}`, open), answer("-ERR 'Authorization Violation'"))
	s := servers.New("nats://"+closed, none, zerolog.Nop())
	s.Look(t.Context())
	if err := s.Unusable(); err == nil || !strings.Contains(err.Error(), "uthorization") {
		t.Errorf("it is taken for one that can be used: %v", err)
	}
}

// speak is a server that begins with a line, and ends each connection as end does at the client's first PING.
func speak(t *testing.T, info string, end func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "%s\r\n", info)
			for from, line := bufio.NewReader(c), ""; line != "PING\r\n" && err == nil; {
				line, err = from.ReadString('\n') // from then on, the client reads
			}
			end(c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// A start that fails says why at each server, in its log and in its error.
func TestStartSaysWhy(t *testing.T) {
	t.Parallel()
	at, log, nobody := secured.Start(t), &journal{}, natstest.Address(t)
	at.Renew(t, -time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
			URL: at.URL + ",tls://" + nobody, RootCAs: at.Roots, Log: zerolog.New(log),
		})
		if err == nil {
			conn.Close()
		}
		failed <- err
	}()
	natstest.Await(t, "both are logged", func() bool {
		return log.count(unusable, expired) == 1 && log.count(unusable, "connection refused") == 1
	})
	cancel()
	err := natstest.Receive(t, "the start ends", failed)
	if err == nil || !strings.Contains(err.Error(), expired) ||
		!strings.Contains(err.Error(), nobody+": ") || strings.Contains(err.Error(), secured.Password) {
		t.Errorf("%v", err)
	}
}

// A start does not wait for the look at a server that says nothing: it tries to connect meanwhile.
func TestStartDoesNotWaitForALook(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all, open atomic.Int32
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if all.Add(1) == 1 { // the first try has failed soon
				_ = c.Close()
				continue
			}
			serving.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				open.Add(1)
				_, _ = c.Read(make([]byte, 1)) // until the client leaves
				open.Add(-1)
			})
		}
	})
	failed := make(chan error, 1)
	go func() {
		_, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
			URL: "nats://" + l.Addr().String(), Log: zerolog.Nop(),
		})
		failed <- err
	}()
	natstest.Await(t, "it is tried during a look", func() bool { return open.Load() == 2 })
	cancel()
	if err := natstest.Receive(t, "the start ends", failed); err == nil {
		t.Error("connected to a server that says nothing")
	}
	_ = l.Close()
	serving.Wait()
}

// none are the options of a server that lets everybody in.
func none() ([]nats.Option, error) { return nil, nil }
