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
	return strings.Join([]string{of, what, on, detail["count"], detail["sessions"], detail["skipped"],
		detail["not_requested"], detail["uncertain"]}, " ")
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
	if err != nil || !slices.Equal(d.Asked, []sessions.ID{"a", "a2", "b"}) ||
		!slices.Equal(d.Skipped, []sessions.ID{"open", "none", "gone"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if want := []string{
		"acc_a callback.sent_again  2 a a2   ", "acc_o callback.sent_again open     ",
		"acc_n callback.sent_again none     ", "acc_g callback.sent_again gone     ",
		"acc_b callback.sent_again b     ", "acc_o callback.sent_again    open  ",
		"acc_n callback.sent_again    none  ", "acc_g callback.sent_again    gone  ",
	}; !slices.Equal(log.notes, want) {
		t.Errorf("records %q", log.notes)
	}
	log.notes = nil
	if d, err = redrive.Send(t.Context(), st, log, access.Operator(""),
		[]sessions.ID{"a", "away", "a2", "b"}); !errors.Is(err, natsconf.ErrUnavailable) ||
		!slices.Equal(d.Asked, []sessions.ID{"a"}) || !slices.Equal(log.notes, []string{
		"acc_a callback.sent_again  3 a away a2   ", "acc_b callback.sent_again b     ",
		"acc_a callback.sent_again     a2 away", "acc_b callback.sent_again     b ",
	}) {
		t.Errorf("where the store goes away: %+v, %v", d, err)
	}
	full := &book{fault: natsconf.ErrUncertain}
	if d, err = redrive.Send(t.Context(), st, full, access.Operator(""),
		[]sessions.ID{"a", "b"}); !errors.Is(err, natsconf.ErrUncertain) || len(d.Asked) != 0 {
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
	log      *book
	t        *testing.T
}

func (s *awayAfter) Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error) {
	if recorded := strings.Fields(strings.Join(s.log.notes, " ")); !slices.Contains(recorded, string(id)) {
		s.t.Errorf("%s is requested; recorded are %q", id, s.log.notes)
	}
	if s.asked = append(s.asked, id); len(s.asked) > s.requests {
		return facts.Resend{}, natsconf.ErrUncertain
	}
	return s.store.Resend(ctx, id, by)
}

// Each callback is in the records before it is requested. Where the store goes away, the records say of which
// one nobody knows whether it was, and of which it was not.
func TestWhatIsRequestedIsRecorded(t *testing.T) {
	ids := []sessions.ID{"a", "a2", "a3"}
	for requests := range ids {
		log := &book{}
		st := &awayAfter{requests: requests, log: log, t: t}
		d, err := redrive.Send(t.Context(), st, log, access.Operator(""), ids)
		if !errors.Is(err, natsconf.ErrUncertain) || !slices.Equal(d.Asked, ids[:requests]) {
			t.Errorf("%+v, %v", d, err)
		}
		if last := log.notes[len(log.notes)-1]; !strings.HasSuffix(last, " "+string(ids[requests])) {
			t.Errorf("recorded last is %q", last)
		}
	}
}
