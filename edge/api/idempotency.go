package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/stats"
	"verifyd/sessions/store"
)

// Reservations makes an idempotency key lead to one session; a *store.Store.
type Reservations interface {
	Reserve(ctx context.Context, k store.IdempotencyKey, start bool) (store.Reservation, error)
	Commit(ctx context.Context, t store.Reservation, r sessions.Request) (s sessions.Session, made bool,
		err error)
	Release(ctx context.Context, t store.Reservation) error
}

// fingerprint distinguishes requests by their decoded fields: a client that writes the same members in
// another order, or escapes them differently, requests the same. Members that are not in the contract do not
// count.
func (v verification) fingerprint() [sha256.Size]byte {
	var b []byte
	fields := []string{v.platform, v.platformUserID, v.guildID, v.callback.String()}
	if v.level != "" { // so that requests without it have the fingerprint that older builds make
		fields = append(fields, string(v.level))
	}
	for _, member := range []struct{ name, value string }{{"reference", v.reference}, {"locale", v.locale}} {
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

// startKeyed starts a session under an idempotency key, or returns the one that was started. A repeat takes
// no unit of quota, and is answered even if the store accepts no new sessions, as long as it can be read.
func (a *api) startKeyed(ctx context.Context, h http.Header, key string, who account.Principal,
	v verification, now time.Time) (initAnswer, *problem.Problem) {
	high, left := a.StoreHigh(), a.StoreLeft()
	turn, err := a.Reservations.Reserve(ctx, store.IdempotencyKey{
		Account: who.Account.ID, Test: who.Key.Test, Key: key, Fingerprint: v.fingerprint(),
	}, !high && left == nil)
	switch {
	case errors.Is(err, store.ErrNotStarted) && left != nil:
		return initAnswer{}, storeLeft(left)
	case errors.Is(err, store.ErrNotStarted):
		return initAnswer{}, storeFull(nil)
	case err != nil:
		return initAnswer{}, turnProblem(err)
	case turn.Session != nil:
		return a.replay(ctx, h, turn.Token, *turn.Session), nil
	}
	if p := a.withinQuota(ctx, h, who, now); p != nil {
		_ = a.Reservations.Release(context.WithoutCancel(ctx), turn) // or it ends by itself, a little later
		return initAnswer{}, p
	}
	s, made, err := a.Reservations.Commit(ctx, turn, requestOf(who, v))
	switch {
	case errors.Is(err, natsconf.ErrUncertain):
		// The session may exist, and a repeat will find it: its unit stays counted, and the reservation is
		// not released.
		return initAnswer{}, storeProblem(err)
	case err != nil:
		err = errors.Join(err, a.giveBack(ctx, who, now),
			a.Reservations.Release(context.WithoutCancel(ctx), turn))
		return initAnswer{}, storeProblem(err)
	case !made:
		// Another edge took this reservation over and was faster; its unit counts. If giving ours back fails,
		// the account has one less.
		_ = a.giveBack(ctx, who, now)
		return a.replay(ctx, h, turn.Token, s), nil
	}
	return a.answer(ctx, turn.Token, s), nil
}

func (a *api) replay(ctx context.Context, h http.Header, token sessions.Token,
	s sessions.Session) initAnswer {
	a.Usages.Count(s.Account, s.Test, stats.CountReplayed)
	h.Set(request.HeaderReplayed, "true")
	web.EventFrom(ctx).Replayed = true
	return a.answer(ctx, token, s)
}

func turnProblem(err error) *problem.Problem {
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
