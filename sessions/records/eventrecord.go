package records

import (
	"context"
	"strings"

	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

// eventRecord is an Event as it is stored.
type eventRecord struct {
	Version int `json:"v"`
	timeline.Event
	Sealed []byte `json:"said,omitempty"` // from version 2 on: Detail and Address of Event, sealed
}

// EncodeEvent returns an event as it is stored; false: its name is not one word.
func (st *Reader) EncodeEvent(e timeline.Event) ([]byte, bool) {
	if strings.Trim(string(e.Name), "abcdefghijklmnopqrstuvwxyz_") != "" || e.Name == "" {
		return nil, false
	}
	if e.At.IsZero() {
		e.At = st.Instant()
	}
	r := eventRecord{Version: eventVersions.Oldest, Event: e}
	if e.SealedUnder != (sessions.KeyRef{}) && e.Detail+e.Address != "" {
		r.Version, r.Sealed = sealedEventVersion, st.sealEvent(e)
		r.Detail, r.Address = "", ""
	}
	if e.Tries > 0 {
		r.Version = eventVersions.Newest
	}
	data, err := EncodeRecord(r)
	return data, err == nil
}

// sealEvent seals what an event holds about the receiver. Nothing waits for an event: the key is in memory if
// its session was read just now, and otherwise the text is left out.
func (st *Opener) sealEvent(e timeline.Event) []byte {
	key, ok := st.keys.cached(e.SealedUnder)
	if !ok {
		return nil
	}
	details, err := Sealer{key: key}.sealDetails(e.Session, receiverDetails{
		Detail: e.Detail, Address: e.Address,
	})
	if err != nil {
		return nil
	}
	return details
}

// DecodeEvent reads an event and opens its sealed part; not ok for one that this build cannot read. The error
// is natsconf.ErrUnavailable.
func (st *Opener) DecodeEvent(ctx context.Context, s sessions.Session, name timeline.EventName,
	data []byte) (e timeline.Event, ok bool,
	err error) {
	var r eventRecord
	if DecodeRecord(data, &r, &r.Version, eventVersions) != nil {
		return timeline.Event{}, false, nil //nolint:nilerr // a timeline with a gap is better than none
	}
	if len(r.Sealed) > 0 {
		d, err := st.openDetails(ctx, s.ID, s.SealedUnder, string(r.Sealed))
		if err != nil {
			return timeline.Event{}, false, err
		}
		r.Detail, r.Address = d.Detail, d.Address
	}
	r.Name, r.Session = name, s.ID
	return r.Event, true, nil
}
