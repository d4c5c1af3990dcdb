package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
)

// Reservations makes an idempotency key lead to one session; a *store.Store.
type Reservations interface {
	Reserve(ctx context.Context, k store.IdempotencyKey) (store.Reservation, error)
	FindReserved(ctx context.Context, k store.IdempotencyKey) (store.Reservation, error)
	TakeOver(ctx context.Context, k store.IdempotencyKey) (store.Reservation, error)
	Commit(ctx context.Context, t store.Reservation, r sessions.Request) (s sessions.Session, made bool,
		err error)
	Release(ctx context.Context, t store.Reservation) error
}

// fingerprint distinguishes requests by their decoded fields: a client that writes the same members in
// another order, or escapes them differently, requests the same. Optional members count only if they are
// given, so that requests without them keep the fingerprint of older builds.
func (v verification) fingerprint() [sha256.Size]byte {
	var b []byte
	fields := []string{v.platform, v.platformUserID, v.guildID, v.callback.String()}
	if v.level != "" { // so that requests without it have the fingerprint that older builds make
		fields = append(fields, string(v.level))
	}
	for _, member := range []struct{ name, value string }{
		{"reference", v.reference}, {"locale", v.locale}, {"display_name", v.displayName},
		{"group_name", v.groupName},
	} {
		if member.value != "" { // the name, so that no member passes for another
			fields = append(fields, member.name, member.value)
		}
	}
	for _, field := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(field))) //nolint:gosec // bounded by MaxBodyBytes
		b = append(b, field...)
	}
	return sha256.Sum256(b)
}

// startKeyed starts a session under an idempotency key, or returns the one that was started. A repeat costs
// no unit of quota, and is answered even if the quota is used up, or the store accepts no new sessions, as
// long as it can be read.
//
// The unit is counted before the reservation is stored, and belongs to it: whoever finds a reservation has
// its unit, and returns the one that was taken for nothing. The unit is free again only once nobody can find
// the reservation.
func (a *api) startKeyed(ctx context.Context, h http.Header, key string, who account.Principal,
	v verification, now time.Time) (initAnswer, *problem.Problem) {
	var u limit.Usage
	full := a.hasRoom()
	refusal := full
	if full == nil {
		u, refusal = a.takeUnit(ctx, who, now)
	}
	reserve := a.Reservations.Reserve
	switch {
	case full != nil:
		reserve = a.Reservations.FindReserved
	case refusal != nil:
		reserve = a.Reservations.TakeOver
	}
	reserved, err := reserve(ctx, store.IdempotencyKey{
		Account: who.Account.ID, Test: who.Key.Test, Key: key, Fingerprint: v.fingerprint(),
	})
	switch made := err == nil && reserved.Session == nil && !reserved.TakenOver; {
	case refusal != nil:
	case made:
		quotaHeaders(h, u, now)
	default:
		a.returnUnused(ctx, who, reserved, err, now)
	}
	switch {
	case errors.Is(err, store.ErrNotStarted):
		return initAnswer{}, a.refused(h, who, u, refusal, now)
	case err != nil:
		return initAnswer{}, reservationProblem(err)
	case reserved.Session != nil:
		return a.replay(ctx, h, reserved.Token, *reserved.Session), nil
	}
	// The repeats of a client that leaves want the session, too, and whether its unit counts depends on
	// knowing who made it.
	ctx, done := wait.Outlasting(ctx, 0)
	defer done()
	s, made, err := a.Reservations.Commit(ctx, reserved, requestOf(who, v))
	switch {
	case errors.Is(err, natsconf.ErrUncertain):
		// The store was away all the time. The session may exist, and a repeat will find it, or make it: the
		// reservation is not released, and keeps its unit.
		return initAnswer{}, storeProblem(err)
	case err != nil:
		return initAnswer{}, storeProblem(errors.Join(err, a.giveUp(ctx, who, reserved, now)))
	case !made: // another owner of the reservation, and so of its unit, was faster
		return a.replay(ctx, h, reserved.Token, s), nil
	}
	return a.answer(ctx, reserved.Token, s), nil
}

// returnUnused returns a unit that was taken for a reservation that was not made. If that is not certain, the
// reservation is given up. If either fails, it is tried again later.
func (g *guard) returnUnused(ctx context.Context, who account.Principal, reserved store.Reservation,
	err error, now time.Time) {
	if errors.Is(err, natsconf.ErrUncertain) && !reserved.TakenOver {
		_ = g.giveUp(ctx, who, reserved, now)
		return
	}
	_ = g.giveBack(ctx, who, now)
}

// giveUp releases a reservation, and returns its unit once that is done. One that was taken over, from or by
// another owner, keeps it.
func (g *guard) giveUp(ctx context.Context, who account.Principal, reserved store.Reservation,
	now time.Time) error {
	release := func(ctx context.Context) (bool, error) {
		err := g.Reservations.Release(ctx, reserved)
		if reserved.TakenOver || errors.Is(err, store.ErrTakenOver) {
			return false, nil
		}
		return err == nil, err
	}
	if who.Key.Test {
		_, err := release(context.WithoutCancel(ctx))
		return err
	}
	return g.Quota.GiveBackIf(ctx, who.Account.ID, now, release)
}

func (a *api) replay(ctx context.Context, h http.Header, token sessions.Token,
	s sessions.Session) initAnswer {
	a.Usages.Count(s.Account, s.Test, stats.CountReplayed)
	h.Set(request.HeaderReplayed, "true")
	web.EventFrom(ctx).Replayed = true
	return a.answer(ctx, token, s)
}

func reservationProblem(err error) *problem.Problem {
	switch {
	case errors.Is(err, store.ErrKeyReused):
		return &problem.Problem{
			Code: problem.CodeIdempotencyReused,
			Detail: "This Idempotency-Key started a session with other fields within the last 10 " +
				"minutes; send a new key for a new session.",
		}
	case errors.Is(err, store.ErrInProgress):
		return &problem.Problem{
			Code: problem.CodeIdempotencyInProgress,
			Detail: "The first request with this Idempotency-Key is still being answered; send it " +
				"again in a moment.", RetryAfter: request.RetryInProgress,
		}
	default:
		return storeProblem(err)
	}
}
