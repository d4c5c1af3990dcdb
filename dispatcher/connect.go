package dispatcher

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

// follow gets the connection of a claim that went ahead. The answer says why the claim was not used; nil: it can be.
func (a *attempt) follow(ctx context.Context) (unused *callback.Answer) {
	conn, ok := a.place.take(ctx)
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

// leave gives the place back, with the connection where it may be used again.
func (a *attempt) leave() {
	a.place.give(a.conn, a.contact)
	a.conn = nil
}

// prepare makes the exact bytes.
func (a *attempt) prepare() (callback.Request, *callback.NotSent) {
	if a.refused != nil {
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassRefusedAddress, Detail: a.refused.Error(), Err: a.refused}
	}
	secrets, ok := a.d.c.Secrets.SigningSecrets(a.Account)
	if !ok {
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassUnsigned, Detail: "the account is not known here"}
	}
	request, err := a.d.c.Client.Prepare(callback.Callback{
		URL: a.target, Session: a.ID, Test: a.Test, PlatformUserID: a.PlatformUserID, GuildID: a.GuildID, Verified: a.Verified(),
		Secrets: secrets, At: a.d.now(), Trace: a.traceparent(),
	})
	if err != nil { // the account has no signing secret that signs
		return callback.Request{}, &callback.NotSent{Class: sessions.ClassUnsigned, Detail: err.Error(), Err: err}
	}
	return request, nil
}

// connect makes sure of a connection that is alive.
func (a *attempt) connect(ctx context.Context) *callback.NotSent {
	if a.conn != nil && a.conn.Alive() {
		a.contact = reached
		return nil
	}
	a.closeConn()
	done := a.part("connect", trace.SpanKindClient)
	conn, err := a.d.c.Client.Dial(ctx, a.target)
	done(attribute.String("server.address", a.target.HostPort()))
	a.place.dialled(err == nil)
	if err != nil {
		if notSent, ok := errors.AsType[*callback.NotSent](err); ok {
			return notSent
		}
		return &callback.NotSent{Class: sessions.ClassConnect, Detail: err.Error(), Err: err}
	}
	a.conn, a.contact = conn, reached
	return nil
}

func (a *attempt) closeConn() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}
