package callback

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"verifyd/natsconf/crashpoint"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/wire"
)

// Conn is a ready connection to one destination. It belongs to one goroutine.
type Conn struct {
	tls         *tls.Conn
	wire        *wire.Wire    // below all TLS, also the egress proxy's
	inner       *wire.Records // of the session with the receiver
	outer       *wire.Records // of the one with the egress proxy; nil if there is none
	destination string        // HostPort of the URL it was dialled for
	address     string        // the receiver's, ip:port, dialled by us or by the egress proxy
	timing      facts.Timing
	timeout     time.Duration // of a whole attempt
	fresh       bool          // nothing was sent yet: the next attempt's time includes the dial's
	broken      bool          // never to be used again
	unsolicited bool          // the receiver sent unsolicited bytes
	asked       bool          // the receiver has asked for a client certificate
}

// IP returns the receiver's address alone; the zero Addr if there is none.
func (cn *Conn) IP() netip.Addr {
	at, _ := netip.ParseAddrPort(cn.address)
	return at.Addr()
}

// Alive reports, without waiting, whether the connection could carry a request now: the receiver has neither
// closed it nor sent anything. It reads what TLS itself has sent, such as session tickets. A connection that
// is not alive never is again.
func (cn *Conn) Alive() bool { return cn.probe() == nil }

// Close ends the connection. It notifies the receiver, unless the connection is broken, and waits for
// nothing. A repeat is harmless.
func (cn *Conn) Close() error {
	if cn.broken {
		return ignoreClosed(cn.wire.Close()) // a close_notify could wait for a receiver that reads nothing
	}
	cn.broken = true
	return ignoreClosed(cn.tls.Close())
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// probe returns nil for a connection that is alive, and otherwise what has happened to it.
func (cn *Conn) probe() error {
	if cn.broken {
		return net.ErrClosed
	}
	err := cn.wire.Probe(cn.tls)
	if err == nil && !cn.fresh && cn.within() { // on a new one it may be TLS's own: a session ticket
		err = wire.ErrUnsolicited
	}
	cn.unsolicited = errors.Is(err, wire.ErrUnsolicited)
	cn.broken = err != nil
	return err
}

// within reports whether part of a record has arrived: its rest would come after the request.
func (cn *Conn) within() bool { return cn.inner.Within() || cn.outer != nil && cn.outer.Within() }

// Unsolicited reports whether the receiver was found to have sent unsolicited bytes. An answer that was read
// from such a connection before may belong to another request, and so may what comes over the receiver's next
// one.
func (cn *Conn) Unsolicited() bool { return cn.unsolicited }

// Send writes the whole request at once and reads the answer. It is called at most once for a claim, and it
// never writes twice: repeating it is a second POST. The context stops it early; what was written stays
// written.
//
// A connection whose Answer is not Reusable is of no further use, but must still be closed.
func (cn *Conn) Send(ctx context.Context, r Request) Answer {
	a := attempt{conn: cn, watch: startWatch()}
	answer := a.run(ctx, r)
	answer.Address = cn.address
	answer.Timing.Total = a.watch.total()
	if cn.fresh {
		answer.Timing.DNS, answer.Timing.Connect, answer.Timing.TLS = cn.timing.DNS, cn.timing.Connect,
			cn.timing.TLS
		answer.Timing.Total += cn.timing.Total
	}
	cn.fresh = false
	cn.broken = cn.broken || !answer.Reusable
	return answer
}

// attempt is one call of Send.
type attempt struct {
	conn  *Conn
	watch *stopwatch
}

func (a *attempt) run(ctx context.Context, r Request) Answer {
	cn := a.conn
	if r.destination == "" || r.destination != cn.destination {
		return Released(failure.Connect,
			"the request was prepared for another destination than this connection's")
	}
	// Checked again here, with nothing but the write after it: a connection that has closed since the dial
	// costs a claim, not an unknown.
	if err := cn.probe(); errors.Is(err, wire.ErrUnsolicited) {
		return Released(failure.Protocol, "the receiver sent bytes before it got a request")
	} else if err != nil {
		return Released(failure.Connect, "the connection ended before the request was written")
	}
	if err := cn.wire.SetDeadline(a.deadline()); err != nil {
		return Released(failure.Connect, "the connection ended before the request was written")
	}
	if ctx.Err() != nil {
		return Released(failure.Late, "stopped before the request was written")
	}
	// Only closing interrupts a read permanently; a deadline set from here could be undone by the one for the
	// body.
	stop := context.AfterFunc(ctx, func() { _ = cn.wire.Close() })
	answer := a.exchange(ctx, r)
	if !stop() {
		answer.Reusable = false
	}
	return answer
}

// deadline is when the attempt ends: the dial, which was made for this attempt, has used its share.
func (a *attempt) deadline() time.Time {
	left := a.conn.timeout
	if a.conn.fresh {
		left -= a.conn.timing.Total
	}
	return a.watch.start.Add(left)
}

func (a *attempt) exchange(ctx context.Context, r Request) Answer {
	cn := a.conn
	crashpoint.Reach(crashpoint.BeforeSend)
	before := cn.wire.Sent()
	a.watch.step()
	if err := r.writeTo(cn.tls); err != nil {
		if cn.wire.Sent() == before {
			return Released(failure.Connect,
				"the connection ended before one byte of the request was taken")
		}
		return a.unknown(ctx, err)
	}
	crashpoint.Reach(crashpoint.AfterSend)
	in := newReader(cn.tls, theReceiver)
	err := in.awaitByte()
	firstByte := a.watch.step()
	if err == nil {
		err = in.readStatus()
	}
	if err != nil {
		answer := a.unknown(ctx, err)
		if in.began {
			answer.Timing.FirstByte = firstByte
		}
		return answer
	}
	crashpoint.Reach(crashpoint.Answered)
	answer := answerOf(in.status)
	answer.Timing.FirstByte = firstByte
	// The verdict has fallen. The rest only serves the log, so it gets little time.
	if grace := time.Now().Add(answerGrace); grace.Before(a.deadline()) {
		_ = cn.wire.SetDeadline(grace)
	}
	in.readRest(&answer)
	cn.unsolicited = in.trailing
	return answer
}

// unknown returns the verdict if bytes left and no status line came back.
func (a *attempt) unknown(ctx context.Context, err error) Answer {
	answer := Answer{Verdict: facts.VerdictUnknown}
	var alert *net.OpError
	var garbage *protocolError
	switch {
	case ctx.Err() != nil:
		answer.Class, answer.Detail = failure.Timeout, "stopped before the receiver answered"
	case errors.As(err, &garbage):
		answer.Class, answer.Detail = failure.Protocol, garbage.Error()
	case isTimeout(err):
		answer.Class, answer.Detail = failure.Timeout,
			fmt.Sprintf("the receiver sent no status line within %v", a.conn.timeout)
	case errors.As(err, &alert) && alert.Op == "remote error":
		answer.Class = failure.Reset
		answer.Detail = "the receiver ended the TLS session: " +
			strings.TrimPrefix(alert.Err.Error(), "tls: ")
		if a.conn.asked { // TLS 1.3 refuses it here
			answer.Detail += wantsCertificate
		}
	case isNotTLS(err):
		answer.Class, answer.Detail = failure.Protocol,
			"the receiver left TLS: what it sent is no record of the session"
	default:
		answer.Class, answer.Detail = failure.Reset,
			"the receiver closed the connection without a status line"
	}
	return answer
}
