package records

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

const (
	// keysOfPage is how many sessions' keys are on one page. With a message for each key, starting a session
	// would cost a second synced write and a delivery a read (docs/DECISIONS.md has the figures); so both
	// cost one in 256.
	keysOfPage = 256
	// pageFor is how long new sessions take keys from a page: natsconf keeps a page longer than results, by
	// more than that.
	pageFor = time.Hour
	// pageWithin bounds one try to store a page. The try does not end with the caller that found no page:
	// others wait for it too. A message that was sent to a server that has vanished is never answered;
	// another page is stored once another server leads.
	pageWithin = 3 * time.Second
	// maxPages bounds the pages that a process remembers, 8 KiB each.
	maxPages = 1024
	// pageUse is the use of the box that seals pages; their owner is the page's name.
	pageUse = "session-keys"
	// pageNameLen is the length of a page's name, in base32 characters: 80 random bits.
	pageNameLen = 16
)

// ErrErased is returned for data whose key was destroyed. For callers it is data that does not exist.
var ErrErased = fmt.Errorf("its user was erased: %w: %w", sessions.ErrNotFound, natsconf.ErrNotFound)

// errNoPage is returned if the page of a key is not there: it has aged out, like everything that it opens, or
// the store was damaged (Session.Lost).
var errNoPage = fmt.Errorf("the page of its key is not there: %w", facts.ErrUnreadable)

func isValid(r sessions.KeyRef) bool {
	return len(r.Page) == pageNameLen && strings.Trim(r.Page, "abcdefghijklmnopqrstuvwxyz234567") == "" &&
		r.Slot >= 0 && r.Slot < keysOfPage
}

// keyPage holds keys of sessions. One that was destroyed is zero.
type keyPage [keysOfPage]secretbox.Key

func newKeyPage() *keyPage {
	page := &keyPage{}
	for i := range page {
		page[i] = secretbox.NewKey()
	}
	return page
}

// pageRecord is a keyPage as it is stored, one message for each page. Its name is in the subject.
type pageRecord struct {
	Version int    `json:"v"`
	Keys    []byte `json:"keys"` // one after another, sealed
}

// PageSubject is the subject of a page of keys.
func PageSubject(page string) string { return "session-keys." + page }

// sessionKeys returns keys to new sessions and finds those of others. Keys that are destroyed meanwhile stay
// in memory: a caller that asks for one first checks whether its session was erased, and a process's memory
// ends with it.
type sessionKeys struct {
	conn *natsconf.Conn
	box  *secretbox.Box
	now  func() time.Time

	mu     sync.Mutex
	pages  map[string]*keyPage
	oldest []string // the names of pages, in the order in which they came
	open   openPage // new sessions take their keys from it
	making *newPage // nil: no caller makes the next one
}

// openPage is the page that new sessions take their keys from. No other process does.
type openPage struct {
	name string
	next int       // the first slot that is not taken; keysOfPage at the end
	till time.Time // from this instant no key of it is taken
}

// newPage is a page that is being stored.
type newPage struct {
	done chan struct{}
	err  error // once done is closed
}

func newSessionKeys(conn *natsconf.Conn, box *secretbox.Box, now func() time.Time) *sessionKeys {
	return &sessionKeys{conn: conn, box: box, now: now, pages: map[string]*keyPage{}}
}

// take returns a key for a new session, which is stored already. Its errors are natsconf.ErrUnavailable and
// ErrStoreFull.
func (k *sessionKeys) take(ctx context.Context) (sessions.KeyRef, secretbox.Key, error) {
	for {
		ref, key, making, mine := k.tryTake()
		switch {
		case making == nil:
			return ref, key, nil
		case mine:
			k.make(ctx, making)
		default:
			select {
			case <-making.done:
			case <-ctx.Done():
				return sessions.KeyRef{}, secretbox.Key{},
					fmt.Errorf("take a key: %w: %w", natsconf.ErrUnavailable, ctx.Err())
			}
		}
		// If the maker's time was over, a caller that has time left makes the next one.
		if err := making.err; err != nil &&
			(mine || !wait.Is(ctx) || ctx.Err() != nil || !errors.Is(err, natsconf.ErrUnavailable)) {
			return sessions.KeyRef{}, secretbox.Key{}, err
		}
	}
}

// tryTake takes a key from the open page. If that has none left, it returns the page that is to be made, and
// whether the caller makes it.
func (k *sessionKeys) tryTake() (ref sessions.KeyRef, key secretbox.Key, making *newPage, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if page := k.pages[k.open.name]; page != nil && k.open.next < keysOfPage && k.now().Before(k.open.till) {
		ref = sessions.KeyRef{Page: k.open.name, Slot: k.open.next}
		k.open.next++
		return ref, page[ref.Slot], nil, false
	}
	if mine = k.making == nil; mine {
		k.making = &newPage{done: make(chan struct{})}
	}
	return sessions.KeyRef{}, secretbox.Key{}, k.making, mine
}

// make stores a new page. If it is not known whether a page is stored, it is not used, and another is tried.
func (k *sessionKeys) make(ctx context.Context, making *newPage) {
	ctx, cancel := wait.Outlasting(ctx, pageWithin)
	defer cancel()
	var name string
	var page *keyPage
	var till time.Time
	var err error
	for range wait.Tries(ctx, 1) {
		name, page, till = strings.ToLower(rand.Text()[:pageNameLen]), newKeyPage(), k.now().Add(pageFor)
		try, end := context.WithTimeout(ctx, pageWithin)
		err = k.store(try, name, page)
		over := try.Err() != nil
		end()
		if !over && !errors.Is(err, natsconf.ErrUncertain) {
			break
		}
	}
	switch {
	case errors.Is(err, natsconf.ErrUncertain): // nothing of the session is stored: its caller need not look
		making.err = fmt.Errorf("store keys of sessions: %w: no answer came", natsconf.ErrUnavailable)
	case err != nil:
		making.err = fmt.Errorf("store keys of sessions: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.open = openPage{name: name, till: till}
		k.remember(name, page)
	}
	k.making = nil
	close(making.done)
}

func (k *sessionKeys) store(ctx context.Context, name string, page *keyPage) error {
	m, err := k.encode(name, page)
	if err != nil {
		return err
	}
	return k.conn.PublishOne(ctx, topology.StreamSessionKeys, m)
}

func (k *sessionKeys) encode(name string, page *keyPage) (*nats.Msg, error) {
	plain := make([]byte, 0, len(page)*secretbox.KeyBytes)
	for _, key := range page {
		plain = append(plain, key[:]...)
	}
	data, err := EncodeRecord(pageRecord{RecordVersions.Newest, k.box.Seal(plain, name)})
	if err != nil {
		return nil, fmt.Errorf("encode keys of sessions: %w", err)
	}
	return &nats.Msg{Subject: PageSubject(name), Data: data}, nil
}

// remember keeps a page in memory. k.mu is held.
func (k *sessionKeys) remember(name string, page *keyPage) {
	if k.pages[name] == nil {
		k.oldest = append(k.oldest, name)
	}
	k.pages[name] = page
	for len(k.oldest) > maxPages {
		if k.oldest[0] != k.open.name {
			delete(k.pages, k.oldest[0])
		} else {
			k.oldest = append(k.oldest, k.open.name)
		}
		k.oldest = k.oldest[1:]
	}
}

// key finds the key of a session. Its errors are ErrErased, ErrUnreadable if there is no such page, ErrNewer
// and natsconf.ErrUnavailable.
func (k *sessionKeys) key(ctx context.Context, ref sessions.KeyRef) (secretbox.Key, error) {
	if !isValid(ref) {
		return secretbox.Key{}, fmt.Errorf("its key has no place: %w", facts.ErrUnreadable)
	}
	k.mu.Lock()
	page := k.pages[ref.Page]
	k.mu.Unlock()
	if page == nil {
		var err error
		if page, _, err = k.read(ctx, ref.Page); err != nil {
			return secretbox.Key{}, err
		}
		k.mu.Lock()
		k.remember(ref.Page, page)
		k.mu.Unlock()
	}
	if key := page[ref.Slot]; key != (secretbox.Key{}) {
		return key, nil
	}
	return secretbox.Key{}, ErrErased
}

// cached returns a session's key without a wait, if its page is remembered.
func (k *sessionKeys) cached(ref sessions.KeyRef) (secretbox.Key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	page := k.pages[ref.Page]
	if page == nil || !isValid(ref) || page[ref.Slot] == (secretbox.Key{}) {
		return secretbox.Key{}, false
	}
	return page[ref.Slot], true
}

// read reads a page from the leader, and its sequence.
func (k *sessionKeys) read(ctx context.Context, name string) (*keyPage, uint64, error) {
	m, err := k.conn.Last(ctx, topology.StreamSessionKeys, PageSubject(name))
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil, 0, errNoPage
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the keys of sessions: %w", err)
	}
	var r pageRecord
	if err := DecodeRecord(m.Data, &r, &r.Version, RecordVersions); err != nil {
		return nil, 0, fmt.Errorf("the page of its key: %w", err)
	}
	plain, err := k.box.Open(r.Keys, name)
	if errors.Is(err, natsconf.ErrNewer) {
		return nil, 0, fmt.Errorf("the page of its key: %w", err)
	}
	page := &keyPage{}
	if err == nil && len(plain) != len(page)*secretbox.KeyBytes {
		err = fmt.Errorf("%d bytes", len(plain))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the page of its key: %w: %w", facts.ErrUnreadable, err)
	}
	for i := range page {
		page[i] = secretbox.Key(plain[i*secretbox.KeyBytes:])
	}
	return page, m.Sequence, nil
}

// destroy removes a session's key permanently: its page is written without it, and the earlier page is
// overwritten in the servers' files. A repeat is harmless, and finishes one that was interrupted. Its errors
// are natsconf's, ErrNewer, and ErrUnreadable if the page does not open: it holds others' keys. If the page
// has aged out, so has the key.
func (k *sessionKeys) destroy(ctx context.Context, ref sessions.KeyRef) error {
	err := natsconf.Retry(ctx, func() error { return k.destroyOnce(ctx, ref) })
	if errors.Is(err, errNoPage) {
		return nil
	}
	return err
}

func (k *sessionKeys) destroyOnce(ctx context.Context, ref sessions.KeyRef) error {
	page, last, err := k.read(ctx, ref.Page)
	if err != nil {
		return err
	}
	if page[ref.Slot] == (secretbox.Key{}) {
		return k.conn.Destroy(ctx, topology.StreamSessionKeys, PageSubject(ref.Page), last)
	}
	page[ref.Slot] = secretbox.Key{}
	m, err := k.encode(ref.Page, page)
	if err != nil {
		return err
	}
	return k.conn.Replace(ctx, topology.StreamSessionKeys, m, last)
}
