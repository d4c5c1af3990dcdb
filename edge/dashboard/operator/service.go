package operator

import (
	"context"
	"net/http"
	"time"

	"verifyd/edge/account/audit"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/facts"
	"verifyd/sessions/hosts"
)

// verdictsFor is how far back verdicts are counted.
const verdictsFor = time.Hour

type serviceData struct {
	Processes []fleet.Process
	Backlog   *fleet.Backlog // nil: no dispatcher reports it
	Verdicts  []verdictCount
	Since     time.Time // of the verdicts
	Receivers hosts.Report
}

type verdictCount struct {
	Verdict facts.Verdict
	Tone    string
	Count   int64
}

// showService answers GET /dashboard/operator: what runs, what waits, and where.
func (h *Handler) showService(w http.ResponseWriter, r *http.Request, v site.Visit) {
	ctx, cancel := h.Within(r)
	defer cancel()
	var d serviceData
	err := h.InOperatorSlot(func() (err error) {
		d, err = h.service(ctx)
		return err
	})
	if err != nil {
		h.Fail(w, r, nil, err)
		return
	}
	h.drawPage(w, r, v, site.View{Page: "operator", Title: "Service", Nav: "operator", Data: d})
}

func (h *Handler) service(ctx context.Context) (serviceData, error) {
	var d serviceData
	verdicts, err := h.Sessions.Verdicts(ctx, h.Now().Add(-verdictsFor))
	if err != nil {
		return d, err
	}
	d.Since = verdicts.Since
	for _, one := range []facts.Verdict{
		facts.VerdictDelivered, facts.VerdictRejected, facts.VerdictUnknown,
		facts.VerdictUndeliverable,
	} {
		d.Verdicts = append(d.Verdicts, verdictCount{one, site.ToneOfVerdict(one), int64(verdicts.By[one])})
	}
	if d.Processes, err = h.Fleet(ctx); err != nil {
		return d, err
	}
	d.Backlog = fleet.Newest(d.Processes)
	d.Receivers, err = h.receivers(ctx, d.Processes)
	return d, err
}

// showAudit answers GET /dashboard/operator/audit: what concerns the whole service, newest first.
func (h *Handler) showAudit(w http.ResponseWriter, r *http.Request, v site.Visit) {
	d, ok := h.AuditLog(w, r, audit.ServiceLog, paths.OperatorAudit)
	if ok {
		h.drawPage(w, r, v, site.View{
			Page: "operatoraudit", Title: "Audit log", Nav: "operator-audit", Data: d,
		})
	}
}
