package notice

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf"
	"verifyd/natsconf/once"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// MaxKept is how many notices an account can have at a time. They are removed only by age, so beyond it no
// notice is stored until older ones are gone: more would not help somebody with 500 unread ones.
const MaxKept = 500

// raiseWithin bounds the wait for another process's notice of the same cause to arrive.
const raiseWithin = 5 * time.Second

// ErrFull is returned for a notice of an account that has MaxKept of them.
var ErrFull = errors.New("the account has as many notices as are kept")

// Store keeps notices, and how far each member has read them. It is safe for concurrent use.
type Store struct{ conn *natsconf.Conn }

// NewStore returns the store of a connection.
func NewStore(c *natsconf.Conn) *Store { return &Store{c} }

func subjectOf(account, id string) string { return "notice." + account + "." + id }

// Raise stores a notice, unless its cause has one. Its errors are ErrFull, account.ErrNoAccount for a text
// that is not an account's id, and natsconf's; a repeat is harmless.
func (s *Store) Raise(ctx context.Context, n Notice) error {
	if !account.IsID(n.Account) {
		return account.ErrNoAccount
	}
	subject := subjectOf(n.Account, n.ID)
	switch _, err := s.conn.Last(ctx, topology.StreamNotices, subject); {
	case err == nil:
		return nil
	case !errors.Is(err, natsconf.ErrNotFound):
		return fmt.Errorf("look for a notice: %w", err)
	}
	kept, err := s.kept(ctx, n.Account)
	if err != nil {
		return err
	}
	if kept >= MaxKept {
		return ErrFull
	}
	data, err := n.encode()
	if err != nil {
		return err
	}
	ctx, cancel := wait.For(ctx, raiseWithin)
	defer cancel()
	_, err = once.Store(ctx, s.conn, topology.StreamNotices, &nats.Msg{Subject: subject, Data: data},
		once.ByConn(s.conn, topology.StreamNotices))
	if errors.Is(err, once.ErrTaken) {
		return nil // another process has seen the cause
	}
	return err
}

// Later reports whether an error of Raise may be gone at the next try; other errors stay.
func Later(err error) bool {
	return errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrUncertain) ||
		errors.Is(err, natsconf.ErrConflict) || errors.Is(err, natsconf.ErrStoreFull)
}

// kept counts an account's notices.
func (s *Store) kept(ctx context.Context, account string) (int, error) {
	stream, err := s.conn.JS.Stream(ctx, topology.StreamNotices)
	if err != nil {
		return 0, fmt.Errorf("count notices: %w: %w", natsconf.ErrUnavailable, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subjectOf(account, "*")))
	if err != nil {
		return 0, fmt.Errorf("count notices: %w: %w", natsconf.ErrUnavailable, err)
	}
	return len(info.State.Subjects), nil
}

// List returns an account's notices, the newest first. Those that a newer build has written are left out. Its
// errors are account.ErrNoAccount and natsconf.ErrUnavailable.
func (s *Store) List(ctx context.Context, id string) ([]Notice, error) {
	if !account.IsID(id) {
		return nil, account.ErrNoAccount
	}
	msgs, err := s.conn.Newest(ctx, topology.StreamNotices, subjectOf(id, "*"))
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	all := make([]Notice, 0, len(msgs))
	for _, m := range msgs {
		n, err := decode(m.Subject(), m.Data())
		meta, merr := m.Metadata()
		if err != nil || merr != nil {
			continue
		}
		n.sequence = meta.Sequence.Stream
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Notice) int { return cmp.Compare(b.sequence, a.sequence) })
	return all, nil
}

// markRecord is which of an account's notices somebody has read. It names them: their places in the stream
// change when the store is moved. It is younger than the notices that it names, and so does not age out
// before them.
type markRecord struct {
	Version int      `json:"v"`
	Read    []string `json:"read"`
}

func markSubject(account string, who access.Actor) string {
	sum := sha256.Sum256([]byte(who.Maker().String()))
	return "notice-read." + account + "." + hex.EncodeToString(sum[:16])
}

// decodeMark reads a mark as a set. What no build wrote, or is damaged, is a mark of nothing: its reader sees
// all notices as new, and the next mark replaces it. The error is natsconf.ErrNewer.
func decodeMark(data []byte) (map[string]bool, error) {
	var r markRecord
	err := natsconf.DecodeRecord(data, &r, &r.Version, recordVersion)
	if errors.Is(err, natsconf.ErrNewer) {
		return nil, fmt.Errorf("what was read of the notices: %w", err)
	}
	read := map[string]bool{}
	if err == nil {
		for _, id := range r.Read {
			read[id] = true
		}
	}
	return read, nil
}

// read returns the ids of the notices that somebody has read.
func (s *Store) read(ctx context.Context, account string, who access.Actor) (map[string]bool, error) {
	m, err := s.conn.Last(ctx, topology.StreamNotices, markSubject(account, who))
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, nil //nolint:nilnil // nothing was read
	}
	if err != nil {
		return nil, fmt.Errorf("read the mark of notices: %w", err)
	}
	return decodeMark(m.Data)
}

// Seen returns an account's notices as somebody sees them, the newest first. Its errors are List's, and
// natsconf.ErrNewer.
func (s *Store) Seen(ctx context.Context, id string, who access.Actor) ([]Notice, error) {
	all, err := s.List(ctx, id)
	if err != nil {
		return nil, err
	}
	read, err := s.read(ctx, id, who)
	for i := range all {
		all[i].Read = read[all[i].ID]
	}
	return all, err
}

// MarkRead records that somebody has read a notice and all that are older. Later ones stay unread, and a
// repeat is harmless. Its errors are Seen's.
func (s *Store) MarkRead(ctx context.Context, id string, who access.Actor, newest string) error {
	all, err := s.List(ctx, id)
	if err != nil {
		return err
	}
	from := slices.IndexFunc(all, func(n Notice) bool { return n.ID == newest })
	if from < 0 {
		return nil // it has left since
	}
	subject := markSubject(id, who)
	return s.conn.Update(ctx, topology.StreamNotices, subject,
		func(current *jetstream.RawStreamMsg) (*nats.Msg, error) {
			read := map[string]bool{}
			if current != nil {
				if read, err = decodeMark(current.Data); err != nil {
					return nil, err
				}
			}
			mark := markRecord{Version: recordVersion}
			for i, n := range all {
				if i >= from || read[n.ID] {
					mark.Read = append(mark.Read, n.ID)
				}
			}
			data, err := json.Marshal(mark)
			return &nats.Msg{Data: data}, err
		})
}

// Unread counts an account's notices that somebody has not read. If there is nothing new, it takes two
// look-ups. Its errors are Seen's.
func (s *Store) Unread(ctx context.Context, id string, who access.Actor) (unread int, err error) {
	newest, err := s.conn.Last(ctx, topology.StreamNotices, subjectOf(id, "*"))
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for notices: %w", err)
	}
	// a reader of the newest has read all before it
	read, err := s.read(ctx, id, who)
	if err != nil || read[newest.Subject[strings.LastIndexByte(newest.Subject, '.')+1:]] {
		return 0, err
	}
	all, err := s.List(ctx, id)
	for _, n := range all {
		if !read[n.ID] {
			unread++
		}
	}
	return unread, err
}
