package operator

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/form"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/hosts"
	"verifyd/sessions/pauses"
	"verifyd/sessions/urlpolicy"
)

// receivers reports where callbacks wait; every page that shows receiver hosts reads it here.
func (h *Handler) receivers(ctx context.Context, all []fleet.Process) (hosts.Report, error) {
	return hosts.NewReport(ctx, all, h.Pauses, h.Sessions)
}

// lasting are the durations for which a host can be paused here; the command line accepts any.
var lasting = form.Choices("15m", "15 minutes", "1h", "1 hour", "4h", "4 hours", "24h", "24 hours")

type hostsData struct {
	hosts.Report

	Lasting      []form.Choice
	NoDispatcher bool // no dispatcher answers
}

// showHosts answers GET /dashboard/operator/hosts.
func (h *Handler) showHosts(w http.ResponseWriter, r *http.Request, v site.Visit) {
	h.drawHosts(w, r, v, nil)
}

func (h *Handler) drawHosts(w http.ResponseWriter, r *http.Request, v site.Visit, f *form.Form) {
	ctx, cancel := h.Within(r)
	defer cancel()
	d := hostsData{Lasting: lasting}
	if err := h.InOperatorSlot(func() error {
		all, err := h.Fleet(ctx)
		if err != nil {
			return err
		}
		d.NoDispatcher = !slices.ContainsFunc(all, func(p fleet.Process) bool {
			return slices.Contains(p.Roles, "dispatcher")
		})
		d.Report, err = h.receivers(ctx, all)
		return err
	}); err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	status := http.StatusOK
	if f != nil {
		status = http.StatusUnprocessableEntity
	}
	h.drawPage(w, r, v, site.View{
		Page: "hosts", Title: "Receiver hosts", Nav: "hosts", Form: f, Status: status, Data: d,
	})
}

// pause answers POST /dashboard/operator/hosts/pause.
func (h *Handler) pause(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	f := form.New(r)
	lasts, err := time.ParseDuration(f.Text("for"))
	if err != nil || form.Choose(f.Values, "for", lasting) == "" {
		h.DrawProblem(w, nil, site.ProblemMalformed)
		return
	}
	p, err := h.Pauses.Begin(ctx, f.Text("host"), v.AsOperator().String(), f.Text("reason"), lasts)
	fault, isFault := errors.AsType[*urlpolicy.Fault](err)
	switch {
	case isFault:
		f.Wrong("host", form.Sentence(fault.Detail))
	case errors.Is(err, pauses.ErrReason):
		f.Wrong("reason", form.Sentence(err.Error()))
	case errors.Is(err, pauses.ErrTooLong):
		f.Wrong("for", form.Sentence(err.Error()))
	case err != nil:
		h.Fail(w, r, nil, err)
		return
	}
	if !f.OK() {
		h.drawHosts(w, r, v, f)
		return
	}
	h.noteHost(ctx, r, v, audit.HostPaused, p.Host, map[string]string{
		"until": p.Until.UTC().Format(time.RFC3339), "reason": p.Reason,
	})
	h.Done(w, flashPaused, paths.OperatorHosts)
}

// resume answers POST /dashboard/operator/hosts/resume.
func (h *Handler) resume(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	p, err := h.Pauses.End(ctx, page.Single(r.PostForm, "host"), v.AsOperator().String())
	_, isFault := errors.AsType[*urlpolicy.Fault](err)
	switch {
	case isFault:
		h.DrawProblem(w, nil, site.ProblemMalformed)
		return
	case errors.Is(err, pauses.ErrNotPaused):
		h.Done(w, site.FlashGone, paths.OperatorHosts)
		return
	case err != nil:
		h.Fail(w, r, nil, err)
		return
	}
	h.noteHost(ctx, r, v, audit.HostResumed, p.Host, nil)
	h.Done(w, flashResumed, paths.OperatorHosts)
}

// noteHost records what is done already: if recording fails, it is not undone.
func (h *Handler) noteHost(ctx context.Context, r *http.Request, v site.Visit, what, host string,
	detail map[string]string) {
	if err := h.Accounts.Note(ctx, v.AsOperator(), audit.ServiceLog, what, host, detail); err != nil {
		web.EventFrom(r.Context()).Err = errors.Join(natsconf.ErrUncertain, err)
	}
}
