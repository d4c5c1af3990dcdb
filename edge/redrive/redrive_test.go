package redrive_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/account/access"
	"verifyd/edge/redrive"
	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// store answers for each session as the test wants.
type store map[sessions.ID]error

func (s store) Resend(_ context.Context, id sessions.ID, by string) (facts.Resend, error) {
	return facts.Resend{Session: id, By: by}, s[id]
}

func (s store) Completion(_ context.Context, id sessions.ID) (sessions.Completion, error) {
	return sessions.Completion{Session: sessions.Session{
		ID: id, Request: sessions.Request{Account: "acc_" + string(id[:1])},
	}}, nil
}

// noteText formats a note.
func noteText(of, what, on string, detail map[string]string) string {
	return strings.Join([]string{of, what, on, detail["count"], detail["sessions"]}, " ")
}

// book collects records; a full one fails.
type book struct {
	notes []string
	fault error
}

func (b *book) Note(_ context.Context, _ access.Actor, of, what, on string,
	detail map[string]string) error {
	b.notes = append(b.notes, noteText(of, what, on, detail))
	return b.fault
}

func TestRedrive(t *testing.T) {
	st := store{
		"open": facts.ErrDeliveryOpen, "none": facts.ErrNoDelivery, "gone": sessions.ErrNotFound,
		"away": natsconf.ErrUnavailable,
	}
	log := &book{}
	d, err := redrive.Send(t.Context(), st, log, access.Operator("olga"), []sessions.ID{
		"a", "open", "none", "gone", "b", "a2",
	})
	if err != nil || !slices.Equal(d.Asked, []sessions.ID{"a", "b", "a2"}) ||
		!slices.Equal(d.Skipped, []sessions.ID{"open", "none", "gone"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if want := []string{"acc_a callback.sent_again  2 a a2",
		"acc_b callback.sent_again b  "}; !slices.Equal(log.notes, want) {
		t.Errorf("records %q", log.notes)
	}
	log.notes = nil
	if d, err = redrive.Send(t.Context(), st, log, access.Operator(""),
		[]sessions.ID{"a", "away", "b"}); !errors.Is(err, natsconf.ErrUnavailable) ||
		len(d.Asked) != 1 || len(log.notes) != 1 {
		t.Errorf("where the store goes away: %+v, %v", d, err)
	}
	full := &book{fault: natsconf.ErrUncertain}
	if d, err = redrive.Send(t.Context(), st, full, access.Operator(""),
		[]sessions.ID{"a", "b"}); !errors.Is(err, natsconf.ErrUncertain) || len(d.Asked) != 2 {
		t.Errorf("where no record can be kept: %+v, %v", d, err)
	}
	log.notes = nil
	if d, err = redrive.Send(t.Context(), st, log, access.Operator(""),
		make([]sessions.ID, redrive.Max+1)); !errors.Is(err, natsconf.ErrTooMany) ||
		len(d.Asked)+len(log.notes) != 0 {
		t.Errorf("of too many: %+v, %v", d, err)
	}
}

// awayAfter is a store that goes away after the requests of some sessions.
type awayAfter struct {
	store
	requests int
	asked    []sessions.ID
}

func (s *awayAfter) Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error) {
	s.asked = append(s.asked, id)
	return s.store.Resend(ctx, id, by)
}

func (s *awayAfter) Completion(ctx context.Context, id sessions.ID) (sessions.Completion, error) {
	if len(s.asked) >= s.requests {
		return sessions.Completion{}, natsconf.ErrUnavailable
	}
	return s.store.Completion(ctx, id)
}

// Wherever the store goes away, each callback that was requested is in the records.
func TestWhatIsRequestedIsRecorded(t *testing.T) {
	for requests := range 3 {
		st, log := &awayAfter{requests: requests}, &book{}
		d, err := redrive.Send(t.Context(), st, log, access.Operator(""), []sessions.ID{"a", "b", "c"})
		recorded := strings.Fields(strings.Join(log.notes, " "))
		for _, id := range st.asked {
			if !slices.Contains(recorded, string(id)) {
				t.Errorf("%s is sent again; recorded are %q", id, log.notes)
			}
		}
		if !errors.Is(err, natsconf.ErrUnavailable) || len(d.Asked) != requests {
			t.Errorf("%+v, %v", d, err)
		}
	}
}
