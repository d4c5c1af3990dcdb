package lists

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/base32"
	"verifyd/sessions/proof"
	"verifyd/sessions/records"
)

const (
	// firstWindow is how many sequences of the records' stream are read at first. The window grows as more
	// are examined, since each read costs a consumer, and while it holds few of the account's records.
	firstWindow = 512
	maxWindow   = 1 << 18
	// minRecords and maxRecords bound how many records are read before the list examines them: four times as
	// many as it has examined. A window that holds more is made smaller.
	minRecords = 1024
	maxRecords = 1 << 16
	// fewSequences is the size of a window below which everything in it is read, if most of it is the
	// account's: when a filtered reading begins, the server looks at every subject that matches, 0.9 s with a
	// million.
	fewSequences = 1 << 14
	// fewRecords is the number of the account's records below which a window counts as nearly empty.
	fewRecords = 64
	// maxGap is how many sequences a span may lag behind before it starts over: a second's reading.
	maxGap = 1 << 17
	// oneByOne is how many new records are read one by one before a consumer is used, which costs more for a
	// few.
	oneByOne = 32
)

// row is what is kept in memory of a session: what queries select by, and its position. It takes 72 bytes,
// the user's name and the reference.
type row struct {
	sequence  uint64
	created   int64  // Unix milliseconds
	texts     string // in the form of Fold: the user, followed by the reference and the display name
	userBytes uint16
	outcome   uint16 // index in span.outcomes; 0: none is known
	platform  uint32 // index in span.names, as group and key
	group     uint32
	key       uint32
	id        [20]byte
	level     uint8 // index in proof.Levels
	refBytes  uint8
	test      bool
	looked    bool // if no outcome is known, there is none at or before span.seen
}

const rowBytes = 72

func (r *row) session() sessions.ID { return sessions.ID(base32.Lower.EncodeToString(r.id[:])) }

func (r *row) user() string { return r.texts[:r.userBytes] }

func (r *row) reference() string { return r.texts[r.userBytes:][:r.refBytes] }

func (r *row) displayName() string { return r.texts[r.userBytes:][r.refBytes:] }

func (r *row) createdAt() time.Time { return time.UnixMilli(r.created).UTC() }

// span holds the records of one account between two sequences, both included. It has one user at a time.
type span struct {
	account   string
	low, high uint64
	newer     []row // oldest first; all are newer than those in older
	older     []row // newest first
	window    uint64
	dense     bool // at least a quarter of the last window was the account's

	names    []name
	numbers  map[[2]string]uint32 // by both texts of a name
	outcomes []sessions.Outcome   // from 1 on; for one without a state the session itself must be read
	seen     uint64               // sequence of the facts' stream (row.looked)
	texts    int                  // bytes of all texts
}

// name is a text that many rows share; of a group, its id and its name.
type name struct{ text, folded, called string }

// newSpan returns an empty span after a sequence.
func newSpan(account string, last uint64) *span {
	return &span{
		account: account, low: last + 1, high: last, window: firstWindow, names: []name{{}},
		numbers: map[[2]string]uint32{{}: 0}, outcomes: []sessions.Outcome{{}, {}},
	}
}

func (s *span) len() int { return len(s.newer) + len(s.older) }

// bytes returns about how much memory the span takes.
func (s *span) bytes() int { return (cap(s.newer)+cap(s.older))*rowBytes + s.texts }

// at returns the row with an index, newest first.
func (s *span) at(i int) *row {
	if i < len(s.newer) {
		return &s.newer[len(s.newer)-1-i]
	}
	return &s.older[i-len(s.newer)]
}

// indexOf returns the index of the newest row at or before a sequence.
func (s *span) indexOf(sequence uint64) int {
	low, high := 0, s.len()
	for low < high {
		if mid := (low + high) / 2; s.at(mid).sequence > sequence {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func (s *span) traits(r *row) traits {
	platform, group := s.names[r.platform], s.names[r.group]
	return traits{
		user: r.user(), reference: r.reference(), displayName: r.displayName(), platform: platform.text,
		guildID: group.text, group: group.folded, groupName: group.called,
		key: s.names[r.key].text, test: r.test, level: proof.Levels[r.level], created: r.createdAt(),
	}
}

// number returns the index of a text, and of what it is called, in the span's names; it adds them if they are
// not there.
func (s *span) number(text, called string) uint32 {
	n, ok := s.numbers[[2]string{text, called}]
	if !ok {
		n = uint32(len(s.names)) //nolint:gosec // a span has no 2^32 rows
		text, called = strings.Clone(text), strings.Clone(called)
		s.names, s.numbers[[2]string{text, called}] = append(s.names, name{text, Fold(text), called}), n
		s.texts += 2*len(text) + len(called) + 100 // and its entry in the map
	}
	return n
}

// down reads one window of records before the span, at most limit of them.
func (s *span) down(ctx context.Context, st *Lists, first uint64, limit int) error {
	from := first
	if s.low-first > s.window {
		from = s.low - s.window
	}
	var rows []row
	err := s.read(ctx, st, from, s.low-1, func(r row) error {
		if rows = append(rows, r); len(rows) >= limit {
			return natsconf.ErrTooMany
		}
		return nil
	})
	switch {
	case errors.Is(err, natsconf.ErrTooMany):
		s.window = firstWindow // which holds fewer than minRecords
		return nil
	case err != nil:
		s.window = max(firstWindow, s.window/8) // so that the next list finishes one in time
		return err
	case len(rows) < fewRecords:
		s.window = min(4*s.window, maxWindow)
	default:
		// four times as many records, or nearly as many as the limit allows
		nearly := s.window * uint64(limit/4*3) / uint64(len(rows)) //nolint:gosec // both are positive
		s.window = max(firstWindow, min(4*s.window, nearly, maxWindow))
	}
	s.dense = uint64(len(rows))*4 >= s.low-from
	slices.Reverse(rows)
	for i := range rows {
		s.texts += len(rows[i].texts)
	}
	s.older, s.low = append(s.older, rows...), from
	return nil
}

// up reads the new records, up to a sequence. After an error the span holds what was read.
func (s *span) up(ctx context.Context, st *Lists, last uint64) error {
	subject := records.RecordSubject(s.account, "*")
	stream := topology.BucketStream(topology.BucketSessions)
	for range oneByOne {
		if s.high >= last {
			return nil
		}
		m, err := st.Conn.Next(ctx, stream, subject, s.high+1)
		switch {
		case errors.Is(err, natsconf.ErrNotFound), err == nil && m.Sequence > last:
			s.high = last
			return nil
		case err != nil:
			return err
		}
		if err := s.take(ctx, st, m.Subject, m.Data, m.Sequence, s.add); err != nil {
			return err
		}
		s.high = m.Sequence
	}
	if err := s.read(ctx, st, s.high+1, last, s.add); err != nil {
		return err
	}
	s.high = last
	return nil
}

// add appends a row that is newer than all others.
func (s *span) add(r row) error {
	s.newer, s.high = append(s.newer, r), r.sequence
	s.texts += len(r.texts)
	return nil
}

// read reads the account's records between two sequences, oldest first.
func (s *span) read(ctx context.Context, st *Lists, from, to uint64, do func(row) error) error {
	subject := records.RecordSubject(s.account, "*")
	if s.dense && to-from < fewSequences {
		subject = ">"
	}
	return st.Conn.Pages(ctx, topology.BucketStream(topology.BucketSessions), subject, from, to,
		func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				if records.AccountOf(m.Subject()) != s.account {
					continue
				}
				meta, err := m.Metadata()
				if err != nil {
					return err
				}
				if err := s.take(ctx, st, m.Subject(), m.Data(), meta.Sequence.Stream, do); err != nil {
					return err
				}
			}
			return nil
		})
}

// take calls do with the row of a record. A record that cannot be read has none: a damaged record, or one of
// a newer build, must not hide all others. If the user was erased, take removes the session's row.
func (s *span) take(ctx context.Context, st *Lists, subject string, data []byte, sequence uint64,
	do func(row) error) error {
	r := row{sequence: sequence}
	text := subject[strings.LastIndexByte(subject, '.')+1:]
	n, err := base32.Lower.Decode(r.id[:], []byte(text[:min(len(text), 32)]))
	if err != nil || n != len(r.id) {
		return nil //nolint:nilerr // it is not a session's record
	}
	if len(data) == 0 {
		s.forget(r.id)
		return nil
	}
	v, err := st.OpenSession(ctx, sessions.ID(text), data)
	if errors.Is(err, natsconf.ErrUnavailable) {
		return err // its key cannot be read now
	}
	if err != nil {
		return nil //nolint:nilerr // see above; a read of the session returns the error
	}
	r.created, r.test = v.CreatedAt.UnixMilli(), v.Test
	user := Fold(v.PlatformUserID)
	user = user[:min(len(user), math.MaxUint16)] // it is a kilobyte at most
	reference := Fold(v.Reference)
	reference = reference[:min(len(reference), math.MaxUint8)] // it is 128 bytes at most
	r.texts = strings.Clone(user + reference + Fold(v.DisplayName))
	r.userBytes, r.refBytes = uint16(len(user)), uint8(len(reference)) //nolint:gosec // see above
	r.platform, r.key = s.number(v.Platform, ""), s.number(v.Key, "")
	r.group = s.number(v.GuildID, Fold(v.GroupName))
	r.level = uint8(max(slices.Index(proof.Levels, v.Level.Or(proof.Link)), 0)) //nolint:gosec // three levels
	return do(r)
}

// forget removes a session's row.
func (s *span) forget(id [20]byte) {
	this := func(r row) bool { return r.id == id }
	s.newer, s.older = slices.DeleteFunc(s.newer, this), slices.DeleteFunc(s.older, this)
}

// cut removes the oldest rows, until the span takes limit bytes at most.
func (s *span) cut(limit int) {
	for s.bytes() > limit && s.len() > 0 {
		if keep := s.len() / 2; keep > 0 {
			s.keep(keep, s.at(keep-1).sequence)
		} else {
			s.keep(0, s.high+1)
		}
	}
}

// keep removes all rows but the newest n. After that the span begins at low.
func (s *span) keep(n int, low uint64) {
	rows := make([]row, 0, n)
	for i := range n {
		rows = append(rows, *s.at(i))
	}
	old := *s
	*s = *newSpan(old.account, old.high)
	s.low, s.window, s.seen, s.outcomes = low, old.window, old.seen, old.outcomes
	for i := range rows {
		r := &rows[i]
		s.texts += len(r.texts)
		for _, n := range []*uint32{&r.platform, &r.group, &r.key} {
			*n = s.number(old.names[*n].text, old.names[*n].called)
		}
	}
	s.older = rows
}
