package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/sessions/stats"
)

// monthLayout and dayLayout are how a month and a day are written in ?month= and in the answer (ISO 8601).
const (
	monthLayout = "2006-01"
	dayLayout   = "2006-01-02"
)

// Usages counts what accounts do, and reads the counts; a *store.Store. Its error is natsconf.ErrUnavailable.
type Usages interface {
	Count(account string, test bool, what stats.Count)
	Usage(ctx context.Context, account string, month time.Time) (stats.Usage, error)
}

// usageDoc is what the key's account did in a month. The quota is that of live sessions, with either kind of
// key; the days are of the key's own kind.
type usageDoc struct {
	Month     string   `json:"month"`
	Test      bool     `json:"test"`
	Quota     int64    `json:"quota"` // the current one, for past months too
	Used      int64    `json:"used"`
	Remaining int64    `json:"remaining"`
	ResetsAt  string   `json:"resets_at"` // when the month's count ends
	Total     dayDoc   `json:"total"`     // of the days
	Days      []dayDoc `json:"days"`      // up to today
}

// dayDoc is what happened on a day, or in a month. Everything about a session is counted on the day on which
// it was started.
type dayDoc struct {
	Day       string       `json:"day,omitempty"` // empty for a month
	Started   int64        `json:"started"`
	Steps     stepsDoc     `json:"steps"`
	Verified  int64        `json:"verified"`
	Failed    failedDoc    `json:"failed"`
	Canceled  int64        `json:"canceled"`
	Expired   int64        `json:"expired"`
	Networks  []networkDoc `json:"networks"`
	Callbacks callbackDoc  `json:"callbacks"`
	Limited   limitedDoc   `json:"limited"`
	Replayed  int64        `json:"replayed"`
}

// stepsDoc counts sessions by how far their users came.
type stepsDoc struct {
	Opened   int64 `json:"opened"`
	SignIn   int64 `json:"sign_in"`
	Returned int64 `json:"returned"`
	Platform int64 `json:"platform"` // the platform account was proven (binding account)
	Code     int64 `json:"code"`     // the code was shown (binding code)
	Finished int64 `json:"finished"`
}

// networkDoc counts tries at an identity network, and the sessions that it decided.
type networkDoc struct {
	Network  string    `json:"network"`
	SignIn   int64     `json:"sign_in"`
	Returned int64     `json:"returned"`
	Trouble  int64     `json:"trouble"`
	Verified int64     `json:"verified"`
	Failed   failedDoc `json:"failed"`
}

type failedDoc struct {
	Declined    int64 `json:"declined"`
	Refused     int64 `json:"refused"`
	Unconfirmed int64 `json:"unconfirmed"`
}

type callbackDoc struct {
	Delivered     int64 `json:"delivered"`
	Rejected      int64 `json:"rejected"`
	Unknown       int64 `json:"unknown"`
	Undeliverable int64 `json:"undeliverable"`
}

type limitedDoc struct {
	RateLimited   int64 `json:"rate_limited"`
	QuotaExceeded int64 `json:"quota_exceeded"`
}

// GET /usage reports what the key's account did in a UTC month, this one unless ?month= names another.
func (a *api) readUsage(w http.ResponseWriter, r *http.Request) {
	who, p := a.authorize(r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	now := a.Now().UTC()
	month, p := monthOf(r.URL.RawQuery, now)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	ctx, done, p := a.wait(r.Context())
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	defer done()
	u, err := a.Usages.Usage(ctx, who.Account.ID, month)
	if err != nil {
		web.WriteProblem(w, r, storeProblem(err))
		return
	}
	quota := a.Quota.Limit(who.Account.Quota)
	doc := usageDoc{
		Month: month.Format(monthLayout), Test: who.Key.Test, Quota: quota, Used: u.Used,
		Remaining: max(quota-u.Used, 0),
		ResetsAt:  web.Timestamp(month.AddDate(0, 1, 0)), Total: dayOf("", u.Total(who.Key.Test)),
		Days: []dayDoc{},
	}
	for _, day := range u.Days {
		if day.Day.After(now) {
			break
		}
		doc.Days = append(doc.Days, dayOf(day.Day.Format(dayLayout), day.Counts(who.Key.Test)))
	}
	web.WriteJSON(w, http.StatusOK, "application/json", doc)
}

// monthOf reads ?month=; the current month if it is absent.
func monthOf(raw string, now time.Time) (time.Time, *problem.Problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return time.Time{}, badParameter("",
			"the query is not of the form name=value&name=value, percent-encoded")
	}
	p := request.Parameters{Values: values}
	text := p.Single("month")
	if text == "" {
		text = now.Format(monthLayout)
	}
	month, err := time.Parse(monthLayout, text)
	switch {
	case err != nil:
		p.Faultf("month", "it is not a month; write it as in %s", now.Format(monthLayout))
	case month.After(now):
		p.Faultf("month", "it has not begun; it is %s now, in UTC", now.Format(monthLayout))
	}
	return month, p.Problem()
}

func dayOf(day string, n map[stats.Count]int64) dayDoc {
	doc := dayDoc{
		Day: day, Started: n[stats.CountStarted],
		Steps: stepsDoc{
			Opened: n[stats.CountOpened], SignIn: n[stats.CountSignIn],
			Returned: n[stats.CountReturned], Platform: n[stats.CountPlatform], Code: n[stats.CountCode],
			Finished: n[stats.CountFinished],
		},
		Verified: n[stats.CountVerified], Failed: failedDoc{
			Declined: n[stats.CountDeclined], Refused: n[stats.CountRefused],
			Unconfirmed: n[stats.CountUnconfirmed],
		},
		Canceled: n[stats.CountCanceled], Expired: n[stats.CountExpired], Networks: []networkDoc{},
		Callbacks: callbackDoc{
			Delivered: n[stats.CountDelivered], Rejected: n[stats.CountRejected],
			Unknown:       n[stats.CountUnknown],
			Undeliverable: n[stats.CountUndeliverable],
		},
		Limited: limitedDoc{
			RateLimited: n[stats.CountRateLimited], QuotaExceeded: n[stats.CountQuotaExceeded],
		},
		Replayed: n[stats.CountReplayed],
	}
	for _, id := range stats.Networks(n) {
		doc.Networks = append(doc.Networks, networkDoc{
			Network: id, SignIn: n[stats.CountSignIn.Of(id)], Returned: n[stats.CountReturned.Of(id)],
			Trouble:  n[stats.CountNetworkError.Of(id)],
			Verified: n[stats.CountVerified.Of(id)],
			Failed: failedDoc{
				Declined: n[stats.CountDeclined.Of(id)], Refused: n[stats.CountRefused.Of(id)],
				Unconfirmed: n[stats.CountUnconfirmed.Of(id)],
			},
		})
	}
	return doc
}
