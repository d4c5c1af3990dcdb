package natsconf

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ScheduleMsg makes a message that JetStream keeps on subject and, when its time has come, puts on target,
// another subject of the same stream, which must allow schedules. Times are whole seconds: at is rounded up.
// A later schedule on the same subject replaces an earlier one.
func ScheduleMsg(subject, target string, at time.Time, data []byte) *nats.Msg {
	if cut := at.Truncate(time.Second); cut.Before(at) {
		at = cut.Add(time.Second)
	}
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		jetstream.ScheduleHeader:       {"@at " + at.UTC().Format(time.RFC3339)},
		jetstream.ScheduleTargetHeader: {target},
	}}
}
