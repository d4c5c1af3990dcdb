package sessions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// SeatTime is how long the browser that began a sign-in keeps others from beginning one, counted from its last press: who has not
// come back from a provider by then is seldom still there, and the session lasts ten minutes in all.
const SeatTime = 2 * time.Minute

// seatTries bounds how often a seat is tried again because somebody else wrote first.
const seatTries = 10

// ErrSeatTaken is returned where another browser has the session's seat; the seat that stands is returned beside it.
var ErrSeatTaken = errors.New("another browser has the session's seat")

// Seat says which browser signs in for a session. It is no fact of the session and decides nothing about its outcome: it keeps two
// browsers from doing the same thing at the same time, on however many edges, and ends with the session.
type Seat struct {
	Browser string    `json:"browser"`        // who has it, as the caller names browsers; empty: nobody ever did
	At      time.Time `json:"at"`             // of the browser's last press
	Free    bool      `json:"free,omitempty"` // its browser gave it up
}

// Until is from when another browser may take the session over.
func (s Seat) Until() time.Time {
	if s.Free || s.Browser == "" {
		return s.At
	}
	return s.At.Add(SeatTime)
}

// Keeps says whether the seat keeps a browser from signing in at an instant.
func (s Seat) Keeps(browser string, now time.Time) bool {
	return s.Browser != "" && s.Browser != browser && now.Before(s.Until())
}

// Superseded says whether a browser that held the session lost it to another, which signs in there now.
func (s Seat) Superseded(browser string) bool {
	return s.Browser != "" && s.Browser != browser && !s.Free
}

// seatRecord is a Seat as it is stored.
type seatRecord struct {
	Version int    `json:"v"`
	Nonce   string `json:"nonce"` // tells one's own write from another's when the answer was lost
	Seat
}

// seatSubject has one word more than a session's record, so that no look-up of a record finds it.
func seatSubject(id ID) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, "seat.browser."+string(id))
}

// SeatOf reads who has a session's seat, from the leader. Its errors are natsconf's; where nobody does, the Seat is empty.
func (st *Store) SeatOf(ctx context.Context, id ID) (Seat, error) {
	r, _, err := st.seat(ctx, id)
	return r.Seat, err
}

// TakeSeat makes a browser the one that signs in for a session, or keeps it so for SeatTime more. browser is up to 64 characters of
// [a-zA-Z0-9]. The error is ErrSeatTaken, with the seat that stands, while another browser has it; others are natsconf's, and
// a repeat after those is harmless.
func (st *Store) TakeSeat(ctx context.Context, id ID, browser string) (Seat, error) {
	return st.changeSeat(ctx, id, func(h Seat, now time.Time) (Seat, bool, error) {
		if h.Keeps(browser, now) {
			return h, false, ErrSeatTaken
		}
		return Seat{Browser: browser, At: now}, true, nil
	})
}

// LeaveSeat gives a session's seat up, so that another browser may begin at once. Where the browser does not have it, nothing happens. Its
// errors are natsconf's.
func (st *Store) LeaveSeat(ctx context.Context, id ID, browser string) error {
	_, err := st.changeSeat(ctx, id, func(h Seat, _ time.Time) (Seat, bool, error) {
		if h.Browser != browser || h.Free {
			return h, false, nil
		}
		h.Free = true
		return h, true, nil
	})
	return err
}

func (st *Store) seat(ctx context.Context, id ID) (seatRecord, uint64, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions), seatSubject(id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return seatRecord{}, 0, nil
	}
	if err != nil {
		return seatRecord{}, 0, fmt.Errorf("read who has the seat of session %s: %w", id, err)
	}
	var r seatRecord
	if err := json.Unmarshal(m.Data, &r); err != nil || r.Version != recordVersion {
		// Of a newer build: nobody is kept out for its sake, since a seat only spares people trouble.
		return seatRecord{}, m.Sequence, nil //nolint:nilerr // see above
	}
	return r, m.Sequence, nil
}

// changeSeat is one compare-and-set of a session's seat. change says what should stand, and whether anything is to be written.
func (st *Store) changeSeat(ctx context.Context, id ID, change func(Seat, time.Time) (Seat, bool, error)) (Seat, error) {
	nonce := rand.Text()
	var lost error
	for range seatTries {
		now, seq, err := st.seat(ctx, id)
		if err != nil {
			return Seat{}, err
		}
		if now.Nonce == nonce {
			return now.Seat, nil // the write whose answer was lost
		}
		next, write, err := change(now.Seat, st.instant())
		if err != nil || !write {
			return now.Seat, err
		}
		if lost = st.putSeat(ctx, id, seatRecord{recordVersion, nonce, next}, seq); lost == nil {
			return next, nil
		}
		if !errors.Is(lost, natsconf.ErrConflict) && !errors.Is(lost, natsconf.ErrUncertain) || ctx.Err() != nil {
			break
		}
	}
	return Seat{}, fmt.Errorf("take the seat of session %s: %w", id, lost)
}

func (st *Store) putSeat(ctx context.Context, id ID, r seatRecord, seq uint64) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode seat: %w", err)
	}
	_, err = st.pending.Publish(ctx, &nats.Msg{Subject: seatSubject(id), Data: data, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(seq, 10)},
		jetstream.MsgTTLHeader:              {Lifetime.String()},
	}})
	return err
}
