package api

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

func (s *service) usage(t *testing.T, key, query string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, "/usage"+query, "", "Authorization", "Bearer "+key)
}

func TestUsageCountsWhatHappened(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	s := newServiceOn(t, conn, func(c *Config) {
		c.Quota = limit.NewQuota(natstest.Writer(t, conn, topology.StreamUsage), 4)
	})
	s.clock.at = time.Date(2026, 11, 2, 23, 59, 0, 0, time.UTC)
	verified := s.start(t).Session
	s.clock.advance(2 * time.Minute) // the next day
	s.complete(t, verified, sessions.Outcome{State: sessions.Verified})
	s.complete(t, s.start(t).Session, sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused})
	s.complete(t, parse[started](t, s.keyed(t, acmeKey, "k", goodBody), http.StatusOK).Session,
		sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined})
	s.keyed(t, acmeKey, "k", goodBody)
	s.cancel(t, s.start(t).Session, acmeKey)
	wantProblem(t, s.init(t, goodBody), problem.CodeQuotaExceeded)
	s.startAs(t, acmeTest, "u")
	for range 3 { // the third is refused; the others find the quota exhausted
		s.do(t, http.MethodPost, pathInit, goodBody, "Authorization", "Bearer "+slowKey, "Content-Type",
			"application/json")
	}
	view, err := s.store.Read(t.Context(), sessions.ID(idOf(t, verified)))
	if err != nil {
		t.Fatal(err)
	}
	next := s.clock.now().Add(time.Minute)
	for _, r := range []facts.Result{
		{Verdict: facts.VerdictReleased}, {Verdict: facts.VerdictRejected, Next: next},
		{Verdict: facts.VerdictRejected},
		{Verdict: facts.VerdictDelivered}, {Verdict: facts.VerdictUnknown},
		{Verdict: facts.VerdictUndeliverable},
	} {
		s.store.CountResult(view.Session, r)
	}
	s.counted()

	got := parse[usageDoc](t, s.usage(t, acmeKey, ""), http.StatusOK)
	if got.Month != "2026-11" || got.Quota != 4 || got.Used != 4 || got.Remaining != 0 ||
		got.ResetsAt != "2026-12-01T00:00:00.000Z" || got.Test || len(got.Days) != 3 {
		t.Fatalf("usage = %+v", got)
	}
	if want := (dayDoc{Day: "2026-11-02", Started: 1, Verified: 1,
		Networks: []networkDoc{}}); !reflect.DeepEqual(got.Days[1], want) {
		t.Errorf("the day before = %+v", got.Days[1])
	}
	day := dayDoc{
		Day: "2026-11-03", Started: 3, Failed: failedDoc{Declined: 1, Refused: 1}, Canceled: 1,
		Networks:  []networkDoc{},
		Callbacks: callbackDoc{Delivered: 1, Rejected: 1, Unknown: 1, Undeliverable: 1},
		Limited:   limitedDoc{RateLimited: 1, QuotaExceeded: 3}, Replayed: 1,
	}
	if !reflect.DeepEqual(got.Days[2], day) {
		t.Errorf("the day = %+v\nwant      %+v", got.Days[2], day)
	}
	day.Day, day.Started, day.Verified = "", 4, 1
	if !reflect.DeepEqual(got.Total, day) {
		t.Errorf("the month = %+v\nwant        %+v", got.Total, day)
	}
	s.clock.advance(24 * time.Hour)
	test := parse[usageDoc](t, s.usage(t, acmeTest, "?month=2026-11"), http.StatusOK)
	if want := (dayDoc{Day: "2026-11-03", Started: 1, Expired: 1, Networks: []networkDoc{}}); !test.Test ||
		test.Used != 4 || !reflect.DeepEqual(test.Days[2], want) {
		t.Errorf("for a test key = %+v", test)
	}
	past := parse[usageDoc](t, s.usage(t, acmeKey, "?month=2026-02"), http.StatusOK)
	if past.Used != 0 || len(past.Days) != 28 || past.ResetsAt != "2026-03-01T00:00:00.000Z" ||
		past.Remaining != 4 {
		t.Errorf("a month without sessions = %+v", past)
	}
	if other := parse[usageDoc](t, s.usage(t, otherKey, ""), http.StatusOK); other.Used != 0 ||
		other.Days[2].Started != 0 {
		t.Errorf("another account = %+v", other)
	}
}

func TestBadMonths(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.clock.at = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	for query, detail := range map[string]string{
		"?month=2026-12": "has not begun", "?month=2026-13": "2026-11", "?month=11-2026": "2026-11",
		"?month=": "empty", "?month=2026-11-01": "2026-11",
		"?month=2026-10&month=2026-11": "once", "?moth=2026-11": "no such parameter",
		"?%zz": "percent-encoded",
	} {
		p := wantProblem(t, s.usage(t, acmeKey, query), problem.CodeInvalidRequest)
		if len(p.Errors) == 0 || !strings.Contains(p.Errors[0].Detail, detail) {
			t.Errorf("%s: errors = %+v", query, p.Errors)
		}
	}
	wantProblem(t, s.usage(t, "vfy_nobody", ""), problem.CodeKeyInvalid)
}
