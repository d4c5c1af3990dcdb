package service

import (
	"testing"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/natsconf/fleet"
)

// Operators are notified of deliveries that no dispatcher had, until none was found for a while.
func TestAlarmAboutStrayDeliveries(t *testing.T) {
	t.Parallel()
	var found *fleet.Strays
	now := time.Now()
	watch := strayWatch(func() *fleet.Strays { return found }, func() time.Time { return now })
	if events := watch(t.Context()); len(events) != 0 {
		t.Errorf("without any: %+v", events)
	}
	found = &fleet.Strays{Found: 2, Session: "s", Last: now}
	events := watch(t.Context())
	if len(events) != 1 || events[0].Type != alarm.DeliveriesStray || events[0].Data["count"] != 2 ||
		events[0].Data["session"] != "s" {
		t.Errorf("after some: %+v", events)
	}
	now = now.Add(QuietAfter)
	if events := watch(t.Context()); len(events) != 0 {
		t.Errorf("after a while: %+v", events)
	}
}
