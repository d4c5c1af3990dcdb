package signin

import (
	"context"
	"errors"
	"time"

	"verifyd/edge/flow"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/records"
	"verifyd/sessions/store"
)

// releaseWithin bounds how long a browser's giving up is offered to JetStream: it only spares another one a
// wait.
const releaseWithin = 2 * time.Second

// acquireLease makes the visit's browser the one that signs in, unless another one does.
func (h *Handler) acquireLease(vis *visit) *reply {
	lease, err := h.sessions.AcquireLease(vis.r.Context(), vis.status.ID, vis.browser())
	switch {
	case errors.Is(err, store.ErrLeaseHeld):
		return h.replyElsewhere(vis, lease)
	case err != nil:
		return h.replyReadError(vis, err)
	}
	return nil
}

// signIns returns which browser signs in for the session, and what is proven already.
func (h *Handler) signIns(vis *visit) (sessions.SignInLease, proof.Progress, error) {
	await := records.Begin(func() (proof.Progress, error) {
		return h.sessions.ProgressOf(vis.r.Context(), vis.status.Session)
	})
	lease, err := h.sessions.LeaseOf(vis.r.Context(), vis.status.ID)
	progress, perr := await()
	return lease, progress, errors.Join(err, perr)
}

// checkDecline lets a browser decline if no other one signs in for the session just now, and, where somebody
// has signed in, if it was this one.
func (h *Handler) checkDecline(vis *visit) *reply {
	switch lease, progress, err := h.signIns(vis); {
	case err != nil:
		return h.replyReadError(vis, err)
	case progress.Network != "" && progress.Browser != vis.browser():
		return h.toPage(vis) // which says where the code is
	case progress.Network == "" && lease.HeldByOther(vis.browser(), h.now()):
		return h.replyElsewhere(vis, lease)
	}
	return nil
}

// checkLease lets a return go on if its browser is the one that signs in, and not one that another has taken
// over from since. That one is sent to the page, which says so, and its attempt stays whole.
func (h *Handler) checkLease(vis *visit, f flow.Flow, await func() (sessions.SignInLease, error)) *reply {
	lease, err := await()
	switch {
	case err != nil:
		return h.replyReadError(vis, err)
	case lease.TakenOverFrom(f.Browser):
		h.step(vis.status, f.Network).Str("outcome", "superseded").
			Msg("a return came after another browser had taken over")
		return h.toPage(vis)
	}
	return nil
}

// giveUp lets another browser begin at once. That it fails costs that one a wait.
func (h *Handler) giveUp(ctx context.Context, id sessions.ID, browser string) {
	if browser == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := h.sessions.ReleaseLease(ctx, id, browser); err != nil {
		h.log.Warn().Err(err).Str("sid", string(id)).Msg("a browser's giving up is not stored")
	}
}

// stop abandons the attempt, as the user asked.
func (h *Handler) stop(vis *visit) *reply {
	h.giveUp(vis.r.Context(), vis.status.ID, vis.browser())
	h.step(vis.status, "").Msg("stopped on the sign-in page")
	return h.toNotice(vis, noteStopped, "")
}

// replyElsewhere says that another browser signs in just now, and how to go on here.
func (p *pages) replyElsewhere(vis *visit, lease sessions.SignInLease) *reply {
	v := p.view(vis, pageElsewhere)
	v.values["asker"], v.values["Asker"] = p.requester(vis, vis.status.Account)
	a, _ := p.accounts.Requester(vis.status.Account)
	v.addBranding(a)
	left := lease.Until().Sub(p.now())
	v.count = max(int((left+time.Minute-1)/time.Minute), 1)
	v.Test, v.Caution = vis.status.Test, true
	v.Again, v.AgainText = vis.again, "note.again"
	return &reply{page: v}
}

// addLease says on a pending session's page that signing in has begun before.
func (v *view) addLease(lease sessions.SignInLease, browser string) {
	switch {
	case lease.Browser == "" || lease.Released:
	case lease.Browser == browser:
		v.Note, v.Stop = "note.begun", true
	default:
		v.Note = "note.takeover"
	}
}
