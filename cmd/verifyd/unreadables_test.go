package main

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/service"
	"verifyd/natsconf/topology"
)

// A server's answer that an attacker has had stored in place of a session's outcome ends that session for the
// integrator, the user and the operator. A new session works.
func TestUnreadableOutcomeIsSeenByAll(t *testing.T) {
	t.Parallel()
	r := alarming(t)
	s := r.begin(t)
	sid := r.api().read(t, s.Session).ID
	if err := r.Store.Conn.NC.PublishRequest("$JS.API.INFO", "completion."+sid, nil); err != nil {
		t.Fatal(err)
	}
	soon(t, func() bool { return r.api().read(t, s.Session).State != "pending" })
	if v := r.api().read(t, s.Session); v.State != "expired" || v.Reason != "unreadable" ||
		v.Verified != nil {
		t.Errorf("the integrator reads %+v", v)
	}
	if status, _, body := r.api().
		call(t, http.MethodPost, "/sessions/"+s.Session+"/cancel", ""); status != http.StatusConflict ||
		!strings.Contains(string(body), "session_expired") {
		t.Errorf("cancel: %d %s", status, body)
	}
	expectTitle(t, must[*demo.Page](t)(demo.NewBrowser().Open(t.Context(), s.VerifyURL)), http.StatusGone,
		"This link has expired")
	if e := r.told(t); e.Type != alarm.FactsUnreadable || e.Status != alarm.Raised ||
		e.Data["session"] != sid || e.Data["subject"] != "completion."+sid || e.Data["sequence"] == 0.0 {
		t.Errorf("told %+v", e)
	}
	if log := r.log.String(); !strings.Contains(log,
		`"sid":"`+sid+`","subject":"completion.`+sid+`","sequence":`) {
		t.Error("the log does not name it")
	}
	if metrics := gathered(t, r); !strings.Contains(metrics,
		`verifyd_unreadable_facts_total{kind="completion"}`) {
		t.Error("it is not measured")
	}
	code, out, errOut := verifyd(t, append([]string{"explain"}, append(r.reach(), sid)...)...)
	if code != 0 || !strings.Contains(out, "Ended without an outcome") ||
		!strings.Contains(out, "has to start a new session") {
		t.Errorf("explain: %d %s%s", code, out, errOut)
	}
	if _, err := r.Store.Conn.Last(t.Context(), topology.StreamCompletions, "claim."+sid+".1"); err == nil {
		t.Error("somebody sends")
	}
	r.offset.Add(int64(service.QuietAfter))
	_ = r.api().read(t, s.Session) // the same again is no news
	if c := r.Unreadables.Conditions(t.Context()); len(c) != 0 {
		t.Errorf("told forever: %+v", c)
	}
	r.offset.Store(0)
	other, b := r.begin(t), demo.NewBrowser()
	must[*demo.Page](t)(b.Press(t.Context(), must[*demo.Page](t)(b.Open(t.Context(), other.VerifyURL)),
		"decline"))
	r.api().until(t, other.Session, "delivered")
}
