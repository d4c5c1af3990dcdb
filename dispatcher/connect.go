package dispatcher

import (
	"context"
	"errors"
	"net/netip"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

// connectClaimed gets the connection of a claim that was made ahead of it. The answer is why the claim was
// not used; nil: it can be.
func (a *attempt) connectClaimed(ctx context.Context) (unused *callback.Answer) {
	conn, ok := a.slot.acquire(ctx)
	if !ok {
		return &callback.Answer{Class: sessions.ClassLate, Detail: "no connection became free in time"}
	}
	a.conn = conn
	if n := a.connect(ctx); n != nil {
		a.contact = contactOf(n.Class)
		return &callback.Answer{Class: n.Class, Detail: n.Detail, Address: n.Address, Timing: n.Timing}
	}
	return nil
}

// releaseSlot returns the place back, with the connection where it may be used again.
func (a *attempt) releaseSlot() {
	a.leaveAddress()
	a.slot.release(a.conn, a.contact)
	a.conn = nil
}

// leaveAddress releases the place at the receiver's address. A repeat is harmless.
func (a *attempt) leaveAddress() {
	if a.freeAddress != nil {
		a.freeAddress()
		a.freeAddress = nil
	}
}

// canReuse reports whether the connection that was kept can carry the request.
func (a *attempt) canReuse() (ok bool) {
	if a.conn == nil || !a.conn.Alive() {
		return false
	}
	leave, ok := a.d.addresses.acquireNow(a.Account, a.conn.IP())
	if ok {
		a.freeAddress = leave
	}
	return ok
}

// prepare makes the exact bytes.
func (a *attempt) prepare() (callback.Request, *callback.NotSent) {
	if a.refused != nil {
		return callback.Request{}, &callback.NotSent{
			Class: sessions.ClassRefusedAddress, Detail: a.refused.Error(), Err: a.refused,
		}
	}
	if a.outlasted {
		return callback.Request{}, notSentForPause()
	}
	secrets, ok := a.d.c.Secrets.SigningSecrets(a.Account)
	if !ok {
		return callback.Request{}, &callback.NotSent{
			Class: sessions.ClassUnsigned, Detail: "the account is not known here",
		}
	}
	request, err := a.d.c.Client.Prepare(callback.Callback{
		URL: a.target, Session: a.ID, Test: a.Test, PlatformUserID: a.PlatformUserID, GuildID: a.GuildID,
		Verified: a.Verified(),
		Secrets:  secrets, At: a.d.now(), Trace: a.traceparent(),
	})
	if err != nil { // the account has no signing secret that signs
		return callback.Request{}, &callback.NotSent{
			Class: sessions.ClassUnsigned, Detail: err.Error(), Err: err,
		}
	}
	return request, nil
}

// connect ensures a connection that is alive.
func (a *attempt) connect(ctx context.Context) *callback.NotSent {
	if a.canReuse() {
		a.contact = reached
		return nil
	}
	a.closeConn()
	done := a.part("connect", trace.SpanKindClient)
	conn, left, err := a.d.c.Client.DialAdmitted(ctx, a.target,
		func(ctx context.Context, to netip.Addr) (func(), error) {
			return a.d.addresses.acquire(ctx, a.Account, to)
		})
	done(attribute.String("server.address", a.target.HostPort()))
	a.slot.dialEnded(err == nil)
	if err != nil {
		if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
			return notSent
		}
		return &callback.NotSent{Class: sessions.ClassConnect, Detail: err.Error(), Err: err}
	}
	a.conn, a.freeAddress, a.contact = conn, left, reached
	return nil
}

func (a *attempt) closeConn() {
	if a.conn != nil {
		if a.conn.Unsolicited() {
			a.slot.worker.t.distrusted.Store(true)
		}
		_ = a.conn.Close()
		a.conn = nil
	}
	a.leaveAddress()
}
