package integrator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/sessions/stats"
)

// Usages reports what an account did in the UTC month that an instant is in; a *store.Store.
type Usages interface {
	Usage(ctx context.Context, account string, month time.Time) (stats.Usage, error)
}

// countOpen is the number of open sessions, which has no counter: started minus ended.
const countOpen stats.Count = "open"

// countGroups are what the page shows. Counts of other names are left out.
var countGroups = []struct {
	Name, Hint string
	Counts     []usageCount
}{
	{"Outcomes", "How sessions ended.", []usageCount{
		{stats.CountVerified, "verified"}, {stats.CountDeclined, "failed: declined"},
		{stats.CountRefused, "failed: refused"}, {stats.CountUnconfirmed, "failed: wrong codes"},
		{stats.CountCanceled, "canceled"},
		{stats.CountExpired, "expired"}, {countOpen, "still open"},
	}},
	{"Bindings", "Steps of sessions that ask for more than a link.", []usageCount{
		{stats.CountPlatform, "platform account proven"}, {stats.CountCode, "code shown"},
	}},
	{"Callbacks", "How attempts to deliver ended.", []usageCount{
		{stats.CountDelivered, "delivered"}, {stats.CountRejected, "rejected"},
		{stats.CountUnknown, "unknown"}, {stats.CountUndeliverable, "undeliverable"},
	}},
	{"Starts", "Calls to POST /verify/init. Only new sessions cost quota.", []usageCount{
		{stats.CountStarted, "new sessions"}, {stats.CountReplayed, "replays"},
		{stats.CountRateLimited, "429: rate limit"}, {stats.CountQuotaExceeded, "429: monthly quota"},
	}},
}

// steps are the steps of users, from the session's start to its end.
var steps = []usageCount{
	{stats.CountStarted, "session started"}, {stats.CountOpened, "page opened"},
	{stats.CountSignIn, "Continue pressed"},
	{stats.CountReturned, "back from the network"}, {stats.CountFinished, "outcome or code shown"},
}

type usageCount struct {
	Count stats.Count
	Name  string
}

type usageGroup struct {
	Name, Hint string
	Rows       []usageRow
}

type usageRow struct {
	Name  string
	Count int64
}

// stepRow is a step with the number of sessions that reached it.
type stepRow struct {
	Name    string
	Count   int64
	Percent int64 // of the sessions started
	Lost    int64 // since the step before, including sessions that are still open
}

// networkRow has the tries at an identity network, and their verdicts.
type networkRow struct {
	ID                                                       string
	SignIn, Returned, NoVerdict, Verified, Declined, Refused int64
}

type usageDay struct {
	Day    time.Time
	Counts []int64 // in the order of the table's heads
}

type usageData struct {
	Month          time.Time // its first instant
	Quota, Used    int64
	Test           bool   // sessions of test keys are shown, which cost no quota
	Other          string // address of the same month with the other kind
	Percent        int64
	Full           bool
	High           bool
	Gauge          float64 // of 100
	Earlier, Later string  // addresses of other months; empty: there are none
	Groups         []usageGroup
	Steps          []stepRow
	Open           int64 // sessions that have not ended
	Networks       []networkRow
	Heads          []string
	Table          []usageDay
	Bars           []bar
	Lines          []gridLine
	Nothing        bool
}

// showUsage answers GET /dashboard/usage.
func (h accountPages) showUsage(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	now := monthOf(h.Now())
	month := now
	if asked, err := time.Parse("2006-01", page.Single(r.URL.Query(), "month")); err == nil &&
		!asked.After(now) {
		month = asked
	}
	u, err := h.Usage.Usage(ctx, v.Account.ID, month)
	if err != nil {
		h.Fail(w, r, &v, err)
		return
	}
	quota := v.Account.Quota
	if quota == 0 {
		quota = h.Quota
	}
	test := page.Single(r.URL.Query(), "keys") == "test"
	d := newUsageData(month, quota, u, test, h.Now())
	to := func(m time.Time, test bool) string {
		return h.Prefix + paths.Usage + "?" +
			form.Query("month", m.Format("2006-01"), "keys", map[bool]string{true: "test"}[test])
	}
	d.Other = to(month, !test)
	if month.After(now.AddDate(0, -12, 0)) && month.After(monthOf(v.Account.CreatedAt)) {
		d.Earlier = to(month.AddDate(0, -1, 0), test)
	}
	if month.Before(now) {
		d.Later = to(month.AddDate(0, 1, 0), test)
	}
	h.Draw(w, site.View{
		Page: "usage", Title: "Usage", Nav: "usage", Visit: &v, Flash: h.TakeFlash(w, r), Data: d,
	})
}

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func newUsageData(month time.Time, quota int64, u stats.Usage, test bool, now time.Time) usageData {
	d := usageData{Month: month, Quota: quota, Used: u.Used, Test: test, Percent: u.Used * 100 / quota}
	d.Gauge = min(100, float64(u.Used)*100/float64(quota))
	d.Full, d.High = u.Used >= quota, d.Percent >= 80
	for _, g := range countGroups {
		for _, c := range g.Counts {
			d.Heads = append(d.Heads, c.Name)
		}
	}
	for _, step := range steps[1:] {
		d.Heads = append(d.Heads, step.Name)
	}
	started := make([]int64, len(u.Days))
	for i, day := range u.Days {
		counts := maps.Clone(day.Counts(test))
		if counts == nil {
			counts = map[stats.Count]int64{}
		}
		counts[countOpen] = stats.Open(counts)
		row := usageDay{Day: day.Day}
		for _, g := range countGroups {
			for _, c := range g.Counts {
				row.Counts = append(row.Counts, counts[c.Count])
			}
		}
		for _, step := range steps[1:] {
			row.Counts = append(row.Counts, counts[step.Count])
		}
		if !day.Day.After(now) {
			d.Table = append(d.Table, row)
		}
		started[i] = counts[stats.CountStarted]
	}
	totals := u.Total(test)
	d.Open = stats.Open(totals)
	totals[countOpen] = d.Open
	d.Steps, d.Networks = stepsOf(totals), networksOf(totals)
	for _, g := range countGroups {
		group := usageGroup{Name: g.Name, Hint: g.Hint}
		for _, c := range g.Counts {
			group.Rows = append(group.Rows, usageRow{c.Name, totals[c.Count]})
		}
		d.Groups = append(d.Groups, group)
	}
	d.Nothing = totals[stats.CountStarted] == 0
	d.Bars, d.Lines = chart(month, started)
	return d
}

// stepsOf returns how many sessions reached each step.
func stepsOf(totals map[stats.Count]int64) []stepRow {
	rows := make([]stepRow, len(steps))
	for i, step := range steps {
		rows[i] = stepRow{Name: step.Name, Count: totals[step.Count]}
		if step.Count == stats.CountFinished { // with a code the outcome is reached on the platform
			rows[i].Count += totals[stats.CountCode]
		}
		if i > 0 { // a user who declines skips steps, and a session of last month may end in this one
			rows[i].Count = min(rows[i].Count, rows[i-1].Count)
			rows[i].Lost = rows[i-1].Count - rows[i].Count
		}
		if all := totals[stats.CountStarted]; all > 0 {
			rows[i].Percent = min(rows[i].Count*100/all, 100)
		}
	}
	return rows
}

func networksOf(totals map[stats.Count]int64) []networkRow {
	var rows []networkRow
	for _, id := range stats.Networks(totals) {
		rows = append(rows, networkRow{
			ID: id, SignIn: totals[stats.CountSignIn.Of(id)],
			Returned:  totals[stats.CountReturned.Of(id)],
			NoVerdict: totals[stats.CountNetworkError.Of(id)],
			Verified:  totals[stats.CountVerified.Of(id)],
			Declined:  totals[stats.CountDeclined.Of(id)], Refused: totals[stats.CountRefused.Of(id)],
		})
	}
	return rows
}

// bar is one day in the chart, in units of its view box.
type bar struct {
	X, Y, Width, Height float64
	Label               string // under it; empty for most
	Middle              float64
	Title               string
	None                bool
}

// gridLine is a line across the chart with its number.
type gridLine struct {
	Y     float64
	Label string
}

// The chart's view box: 640 by 190, of which 40 at the left are for numbers and 20 at the bottom for days.
const (
	chartLeft, chartTop, chartWidth, chartHeight = 40.0, 16.0, 600.0, 148.0
	barGap                                       = 4.0
)

// chart lays out the sessions started on each day of a month, to its end.
func chart(month time.Time, started []int64) ([]bar, []gridLine) {
	highest := slices.Max(append(started, 0))
	top := roundUp(highest)
	var lines []gridLine
	for i := range 3 { // none, half, all
		lines = append(lines, gridLine{chartTop + chartHeight*float64(2-i)/2, site.Count(top * int64(i) / 2)})
	}
	days := len(started)
	step := chartWidth / float64(days)
	bars := make([]bar, 0, days)
	for day := 1; day <= days; day++ {
		n := started[day-1]
		b := bar{
			X: chartLeft + step*float64(day-1) + barGap/2, Width: step - barGap,
			Height: chartHeight * float64(n) / float64(top),
			Title: fmt.Sprintf("%s: %s started", month.AddDate(0, 0, day-1).Format("2 January"),
				site.Count(n)),
		}
		if b.None = n == 0; b.None {
			b.Height = 1 // a day without sessions is a day
		}
		b.Y, b.Middle = chartTop+chartHeight-b.Height, b.X+b.Width/2
		if day == 1 || day%5 == 0 && day < 30 || day == days && days%5 != 1 {
			b.Label = fmt.Sprint(day)
		}
		bars = append(bars, b)
	}
	return bars, lines
}

// roundUp returns the next round number whose half is whole: 2, 4, 6, 8, 10, 20, 30, 40, 50 and so on.
func roundUp(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range []int64{2, 3, 4, 5, 6, 8, 10} {
			if step*unit%2 != 0 {
				continue
			}
			if n <= step*unit {
				return step * unit
			}
		}
	}
}
