package natsconf

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// originHeader is carried by each message that was brought from another store, or from a backup of one
// (package transfer).
const originHeader = "Verifyd-Origin"

// Origin is where a message that was brought from another store comes from. The message's own sequence and
// time in this store show when it was brought.
type Origin struct {
	Sequence uint64    `json:"n"`              // in the store that it was read from
	Stored   time.Time `json:"at"`             // when it was first stored, in whatever store
	Until    time.Time `json:"until,omitzero"` // when its life ends; zero: never
}

// OriginOf reads a message's origin; ok is false for a message that was written here.
func OriginOf(h nats.Header) (o Origin, ok bool) {
	text := h.Get(originHeader)
	if text == "" {
		return Origin{}, false
	}
	var stored, until int64
	if n, err := fmt.Sscan(text, &o.Sequence, &stored, &until); err != nil || n != 3 {
		return Origin{}, false
	}
	o.Stored = time.UnixMilli(stored).UTC()
	if until != 0 {
		o.Until = time.UnixMilli(until).UTC()
	}
	return o, true
}

// Over reports whether the life of the message has ended, wherever it is.
func (o Origin) Over(now time.Time) bool { return !o.Until.IsZero() && !now.Before(o.Until) }

// Put writes an origin into a message's header, replacing any that it has.
func (o Origin) Put(h nats.Header) {
	until := int64(0)
	if !o.Until.IsZero() {
		until = o.Until.UnixMilli()
	}
	h[originHeader] = []string{fmt.Sprintf("%d %d %d", o.Sequence, o.Stored.UnixMilli(), until)}
}

// IsOriginHeader reports whether a header field is the one that Put writes.
func IsOriginHeader(name string) bool { return name == originHeader }

// StoredAt returns when a message was first stored, in this store or another; at is its time in this one.
func StoredAt(h nats.Header, at time.Time) time.Time {
	if o, ok := OriginOf(h); ok {
		return o.Stored
	}
	return at
}

// IsMarker reports whether a message of a bucket's stream marks the key as deleted, instead of holding its
// value.
func IsMarker(h nats.Header) bool { return h.Get("KV-Operation") != "" }

// Marker returns a message that deletes the entry on a subject of a bucket.
func Marker(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{"KV-Operation": {"PURGE"}}}
}

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
