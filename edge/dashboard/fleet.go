package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/page"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
	"verifyd/sessions/target"
	"verifyd/sessions/told"
)

const (
	// dueWithin is how long the page of the service looks back for deliveries that are due, and dueMost how many it counts.
	dueWithin = 3 * time.Second
	dueMost   = 2000
	// verdictsFor is how far back verdicts are counted.
	verdictsFor = time.Hour
)

// hostRow is a receiver host as operators see it.
type hostRow struct {
	roster.Host

	Due    int       // deliveries that are due to it
	Oldest time.Time // since when the oldest of them is
	Pause  *pauses.Pause
}

// Calm says whether nothing keeps callbacks from the host.
func (r hostRow) Calm() bool { return r.Pause == nil && r.Breaker == roster.BreakerClosed }

type serviceData struct {
	Processes []roster.Process
	Backlog   *roster.Backlog // nil: no dispatcher tells it
	Verdicts  []verdictCount
	Since     time.Time // of the verdicts
	Hosts     []hostRow
	BackTo    time.Time // how far back due deliveries were looked for; zero: all of them
}

type verdictCount struct {
	Verdict sessions.Verdict
	Tone    string
	Count   int64
}

// showService answers GET /dashboard/operator: what runs, what waits, and where.
func (h *Handler) showService(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	d, err := h.service(ctx)
	if err != nil {
		h.fail(w, r, nil, err)
		return
	}
	h.drawOperator(w, r, v, view{page: "operator", Title: "Service", Nav: "operator", Data: d})
}

func (h *Handler) service(ctx context.Context) (serviceData, error) {
	var d serviceData
	verdicts, err := h.Sessions.Verdicts(ctx, h.Now().Add(-verdictsFor))
	if err != nil {
		return d, err
	}
	d.Since = verdicts.Since
	for _, one := range []sessions.Verdict{
		sessions.VerdictDelivered, sessions.VerdictRejected, sessions.VerdictUnknown, sessions.VerdictUndeliverable,
	} {
		d.Verdicts = append(d.Verdicts, verdictCount{one, toneOfVerdict(one), int64(verdicts.By[one])})
	}
	if d.Processes, err = h.Fleet(ctx); err != nil {
		return d, err
	}
	d.Backlog = roster.Newest(d.Processes)
	if d.Hosts, err = h.hosts(ctx, d.Processes); err != nil {
		return d, err
	}
	d.BackTo, err = h.countDue(ctx, &d.Hosts)
	return d, err
}

// hosts joins what dispatchers see with what is paused: paused hosts first, then those where nobody answers.
func (h *Handler) hosts(ctx context.Context, all []roster.Process) ([]hostRow, error) {
	paused, err := h.Pauses.List(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]hostRow, 0, len(paused))
	for _, p := range paused {
		rows = append(rows, hostRow{Host: roster.Host{Host: p.Host, Breaker: roster.BreakerClosed}, Pause: &p})
	}
	for _, seen := range roster.Hosts(all) {
		if i := slices.IndexFunc(rows, func(r hostRow) bool { return r.Host.Host == seen.Host }); i >= 0 {
			rows[i].Host = seen
			continue
		}
		rows = append(rows, hostRow{Host: seen})
	}
	return rows, nil
}

// countDue counts the deliveries that are due by host, as far as it comes; then it gives how far back that is.
func (h *Handler) countDue(ctx context.Context, rows *[]hostRow) (backTo time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, dueWithin)
	defer cancel()
	found, err := h.Sessions.FindDeliveries(ctx, sessions.DeliveryQuery{
		States: []sessions.DeliveryState{sessions.DeliveryDue, sessions.DeliveryClaimed}, Limit: dueMost,
	})
	if err != nil {
		return time.Time{}, err
	}
	for _, v := range found.Views {
		host := told.Host(v.Session)
		i := slices.IndexFunc(*rows, func(r hostRow) bool { return r.Host.Host == host })
		if i < 0 {
			i = len(*rows)
			*rows = append(*rows, hostRow{Host: roster.Host{Host: host, Breaker: roster.BreakerClosed}})
		}
		row := &(*rows)[i]
		row.Due++
		if row.Oldest.IsZero() || v.CompletedAt.Before(row.Oldest) {
			row.Oldest = v.CompletedAt
		}
	}
	return found.BackTo, nil
}

// lasting are the times for which a host can be paused here; the command line takes any.
var lasting = []choice{{"15m", "15 minutes"}, {"1h", "1 hour"}, {"4h", "4 hours"}, {"24h", "24 hours"}}

type hostsData struct {
	Rows    []hostRow
	Lasting []choice
	Nobody  bool // no dispatcher answers
}

// showHosts answers GET /dashboard/operator/hosts.
func (h *Handler) showHosts(w http.ResponseWriter, r *http.Request, v visit) {
	h.drawHosts(w, r, v, nil)
}

func (h *Handler) drawHosts(w http.ResponseWriter, r *http.Request, v visit, f *form) {
	ctx, cancel := within(r)
	defer cancel()
	all, err := h.Fleet(ctx)
	if err != nil {
		h.fail(w, r, nil, err)
		return
	}
	d := hostsData{Lasting: lasting}
	d.Nobody = !slices.ContainsFunc(all, func(p roster.Process) bool { return slices.Contains(p.Roles, "dispatcher") })
	if d.Rows, err = h.hosts(ctx, all); err != nil {
		h.fail(w, r, nil, err)
		return
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.drawOperator(w, r, v, view{page: "hosts", Title: "Receiver hosts", Nav: "hosts", Form: f, status: status, Data: d})
}

// pause answers POST /dashboard/operator/hosts/pause.
func (h *Handler) pause(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	f := newForm(r)
	lasts, err := time.ParseDuration(f.text("for"))
	if err != nil || chosen(f.values, "for", lasting) == "" {
		h.drawProblem(w, nil, problemMalformed)
		return
	}
	p, err := h.Pauses.Begin(ctx, f.text("host"), v.asOperator().String(), f.text("reason"), lasts)
	fault, isFault := errors.AsType[*target.Fault](err)
	switch {
	case isFault:
		f.wrong("host", sentence(fault.Detail))
	case errors.Is(err, pauses.ErrReason):
		f.wrong("reason", sentence(err.Error()))
	case errors.Is(err, pauses.ErrTooLong):
		f.wrong("for", sentence(err.Error()))
	case err != nil:
		h.fail(w, r, nil, err)
		return
	}
	if !f.ok() {
		h.drawHosts(w, r, v, f)
		return
	}
	h.noteHost(ctx, r, v, account.HostPaused, p.Host, map[string]string{"until": p.Until.UTC().Format(time.RFC3339), "reason": p.Reason})
	h.done(w, flashPaused, pathOperatorHosts)
}

// resume answers POST /dashboard/operator/hosts/resume.
func (h *Handler) resume(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, cancel := within(r)
	defer cancel()
	p, err := h.Pauses.End(ctx, page.Single(r.PostForm, "host"), v.asOperator().String())
	_, isFault := errors.AsType[*target.Fault](err)
	switch {
	case isFault:
		h.drawProblem(w, nil, problemMalformed)
		return
	case errors.Is(err, pauses.ErrNotPaused):
		h.done(w, flashGone, pathOperatorHosts)
		return
	case err != nil:
		h.fail(w, r, nil, err)
		return
	}
	h.noteHost(ctx, r, v, account.HostResumed, p.Host, nil)
	h.done(w, flashResumed, pathOperatorHosts)
}

// noteHost keeps a record of what stands already: that the log does not say so yet takes nothing back.
func (h *Handler) noteHost(ctx context.Context, r *http.Request, v visit, what, host string, detail map[string]string) {
	if err := h.Accounts.Note(ctx, v.asOperator(), account.ServiceLog, what, host, detail); err != nil {
		edge.LineOf(r.Context()).Err = errors.Join(natsconf.ErrUncertain, err)
	}
}
