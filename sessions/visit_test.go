package sessions_test

import (
	"reflect"
	"testing"

	"verifyd/sessions"
)

// A reload loop puts one line on the timeline, whichever edges it hits, and the other steps stand where they belong.
func TestVisitOnTheTimeline(t *testing.T) {
	h := start(t)
	other := newStore(t, h) // another edge
	s, _ := h.create(t)
	for range 100 {
		for _, st := range []*sessions.Store{h.store, other} {
			st.EmitOnce(sessions.Event{Session: s.ID, Name: sessions.EventOpened})
		}
	}
	h.store.Emit(sessions.Event{Session: s.ID, Name: sessions.EventSignIn, Network: "default"})
	h.store.Emit(sessions.Event{Session: s.ID, Name: sessions.EventReturned, Network: "default"})
	c, err := h.store.Complete(t.Context(), s.ID, verified)
	if err != nil {
		t.Fatal(err)
	}
	h.store.Emit(sessions.Event{Session: s.ID, Name: sessions.EventFinished, At: c.CompletedAt})
	_, entries := h.timeline(t, s.ID, 4)
	if got, want := said(entries), []string{"created", "opened", "sign_in", "returned", "completed", "finished"}; !reflect.DeepEqual(got, want) {
		t.Errorf("timeline is %q, want %q", got, want)
	}
}
