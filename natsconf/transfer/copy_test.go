package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

// copied is an embedded store and its copy.
type copied struct {
	conn      *natsconf.Conn
	data, dir string
	key       secretbox.Key
	config    func(*transfer.CopierConfig)

	copier *transfer.Copier
	stop   func()
}

func newCopied(t *testing.T, dir string) *copied {
	t.Helper()
	natstest.NeedsEmbedded(t, "copies an embedded store")
	c := &copied{data: t.TempDir(), dir: dir, key: secretbox.NewKey()}
	c.conn, _ = natstest.StartIn(t, c.data)
	return c
}

// start begins to copy.
func (c *copied) start(t *testing.T) {
	t.Helper()
	config := transfer.CopierConfig{
		Conn: c.conn, DataDir: c.data, Dir: c.dir, Assets: assets(), Store: "store", Key: c.key,
		Build: "test", Log: zerolog.Nop(),
		Skip: func(context.Context) (transfer.Skip, error) {
			return nil, //nolint:nilnil // nothing is left out
				nil
		},
		Removals: topology.BucketSubject(topology.BucketStore, "erased.*"),
	}
	if c.config != nil {
		c.config(&config)
	}
	c.copier = transfer.NewCopier(config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.copier.Serve(ctx)
	}()
	c.stop = func() { cancel(); <-done }
	t.Cleanup(func() { c.stop() })
}

// upToDate waits until everything that was stored before is in the copy.
func (c *copied) upToDate(t *testing.T) {
	t.Helper()
	c.flushed(t)
	now := time.Now()
	natstest.Await(t, "the copy to be up to date", func() bool { return c.copier.State().At.After(now) })
}

// flushed waits until the events are in the files, which the server writes a little later than the rest.
func (c *copied) flushed(t *testing.T) {
	t.Helper()
	_, last, err := c.conn.Bounds(t.Context(), topology.StreamEvents)
	if err != nil || last == 0 {
		return
	}
	tail := storefile.NewTail(embedded.StreamFolder(c.data, topology.StreamEvents), topology.StreamEvents,
		last-1)
	defer tail.Close()
	var read uint64
	natstest.Await(t, "the events to be in the files", func() bool {
		err := tail.Read(func(m *storefile.Message) error { read = m.Sequence; return nil })
		return err == nil && read == last
	})
}

// restored fills a new store from the copy.
func (c *copied) restored(t *testing.T) *natsconf.Conn {
	t.Helper()
	s, err := transfer.OpenSource(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Check(c.key, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	to := natstest.Start(t)
	for range 2 { // a repeat is harmless
		if _, err := s.Restore(t.Context(), to, assets(), nil, c.key); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// check reads the copy, and returns what is wrong with it.
func (c *copied) check() error {
	s, err := transfer.OpenSource(c.dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	_, err = s.Check(c.key, func(string, string) {})
	return err
}

// messagesOf returns how many messages of a subject are in the copy.
func (c *copied) messagesOf(t *testing.T, subject string) (n int) {
	t.Helper()
	s, err := transfer.OpenSource(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Check(c.key, func(_, of string) {
		if of == subject {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// generation returns the file of the current generation.
func (c *copied) generation(t *testing.T) string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != "verifyd-copy" && name != "verifyd-copy.lock" && name != "lost+found" {
			found = append(found, filepath.Join(c.dir, name))
		}
	}
	if len(found) != 1 {
		t.Fatalf("generations: %v", found)
	}
	return found[0]
}

// A store that is restored from a copy holds what the original held: the messages at the start of the copy,
// and whatever was written, overwritten, and removed since, also while a new generation was created. The copy
// is let catch up, which takes up to a second, after every third round; in the proof "disk" after each.
func TestCopyHoldsWhatTheStoreHolds(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.config = func(o *transfer.CopierConfig) { o.RenewAfter = 3 * time.Second }
	fill(t, c.conn, 0)
	c.start(t)
	first, rounds := time.Time{}, prove.Size("disk", 3, 1)
	for round := 1; round < 200; round++ {
		fill(t, c.conn, round)
		s := c.copier.State()
		if first.IsZero() {
			first = s.Renewed
		}
		if round > 20 && !first.IsZero() && !s.Renewed.Equal(first) {
			break
		}
		if round%rounds == 0 {
			c.upToDate(t)
		}
	}
	c.upToDate(t)
	c.stop()
	if s := c.copier.State(); s.Renewed.Equal(first) {
		t.Error("no new generation was made")
	}
	pair{c.conn, c.restored(t)}.equal(t, 3000)
}

// A copy continues where it was, whether its service was stopped or killed, and ignores an interrupted pass.
func TestCopyContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	fill(t, c.conn, 0)
	c.start(t)
	c.upToDate(t)
	was := c.generation(t)
	for round := 1; round < 4; round++ {
		c.stop()
		f, err := os.OpenFile(was, os.O_WRONLY|os.O_APPEND, 0o600) // a pass that was cut
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(bytes.Repeat([]byte{0, 0, 1, byte(round)}, 100))
		if err := errors.Join(err, f.Close(),
			os.WriteFile(filepath.Join(c.dir, "verifyd-copy.new"), []byte("{"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := c.check(); err != nil {
			t.Errorf("a copy that was cut in the middle of a pass: %v", err)
		}
		fill(t, c.conn, round)
		c.start(t)
		c.upToDate(t)
		if now := c.generation(t); now != was {
			t.Errorf("generation %s goes on as %s", was, now)
		}
	}
	c.stop()
	pair{c.conn, c.restored(t)}.equal(t, 640)
}

// After the master key was changed, the copy is made anew under the new key, in the place of the one that the
// old key has sealed. A copy of another key is refused if the store's own was never changed.
func TestCopyAfterTheMasterKeyWasChanged(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	fill(t, c.conn, 0)
	c.start(t)
	c.upToDate(t)
	c.stop()
	was := c.generation(t)
	c.key = secretbox.NewKey()
	at := transfer.CopierConfig{Dir: c.dir, DataDir: c.data, Store: "store", Key: c.key}
	for what, err := range map[string]error{
		"a start": transfer.NewCopier(at).Check(), "a check": transfer.CheckCopy(at),
	} {
		if err == nil || !strings.Contains(err.Error(), "another master key") {
			t.Errorf("%s with another key: %v", what, err)
		}
	}
	at.Rekeyed = true
	if err := transfer.CheckCopy(at); err != nil {
		t.Error(err)
	}
	if now := c.generation(t); now != was {
		t.Error("the copy is gone before there is another")
	}
	c.config = func(o *transfer.CopierConfig) { o.Rekeyed = true }
	fill(t, c.conn, 1)
	c.start(t)
	c.upToDate(t)
	c.stop()
	pair{c.conn, c.restored(t)}.equal(t, 320)
	s, err := transfer.OpenSource(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if v := s.Head().Version; v != 2 {
		t.Errorf("version %d, which a build reads that uses only one key", v)
	}
}

// A copy that was altered or cut short is refused, and the refusal says where.
func TestDamagedCopyIsRefused(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.start(t)
	for round := range 3 {
		fill(t, c.conn, round)
		c.upToDate(t)
	}
	c.stop()
	log, manifest := c.generation(t), filepath.Join(c.dir, "verifyd-copy")
	whole := map[string][]byte{}
	for _, path := range []string{log, manifest} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[path] = b
	}
	refused := func(name, path string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		err := c.check()
		var damage *transfer.DamagedCopyError
		if path == log &&
			(!errors.As(err, &damage) || !errors.Is(err, transfer.ErrDamaged) ||
				!strings.Contains(err.Error(), "at byte")) || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(path, whole[path], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, b := range whole {
		for range 60 {
			at := rand.IntN(len(b))
			flipped := bytes.Clone(b)
			flipped[at] ^= 1 << rand.IntN(8)
			refused(fmt.Sprintf("%s with a bit of byte %d of %d", filepath.Base(path), at, len(b)), path,
				flipped)
		}
		refused(filepath.Base(path)+" cut short", path, b[:len(b)-1])
		refused(filepath.Base(path)+" empty", path, nil)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if err := (&copied{dir: c.dir, key: secretbox.NewKey()}).
		check(); !errors.Is(err, transfer.ErrAnotherKey) {
		t.Errorf("with another master key: %v", err)
	}
	// The service creates it again, and keeps the old one until then.
	flipped := bytes.Clone(whole[manifest])
	flipped[len(flipped)-1] ^= 1
	if err := os.WriteFile(manifest, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	c.upToDate(t)
	c.stop()
	pair{c.conn, c.restored(t)}.equal(t, 480)
}

// A message that expired or was removed does not come back from an earlier frame, also if what had replaced
// it expired before it was copied: the copy is created again.
func TestCopyDoesNotBringBackWhatIsOver(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.config = func(o *transfer.CopierConfig) { o.MinRenew = time.Millisecond }
	c.start(t)
	subject := topology.BucketSubject(topology.BucketAlarms, "cause")
	publish(t, c.conn, subject, "raised")
	login := topology.BucketSubject(topology.BucketLogins, "session.a")
	publish(t, c.conn, login, "login")
	c.upToDate(t)
	publish(t, c.conn, subject, "resolved", jetstream.MsgTTLHeader, "1s")
	publish(t, c.conn, login, "", purged...)
	c.upToDate(t)
	natstest.Await(t, "a copy with both messages of the cause, or with none", func() bool {
		return c.messagesOf(t, subject) != 1
	})
	c.stop()
	stream := topology.BucketStream(topology.BucketAlarms)
	gone := func(conn *natsconf.Conn) func() bool {
		return func() bool {
			_, err := conn.Last(t.Context(), stream, subject)
			return errors.Is(err, natsconf.ErrNotFound)
		}
	}
	natstest.Await(t, "the cause to be over", gone(c.conn))
	to := c.restored(t)
	natstest.Await(t, "the cause to be over after the restore", gone(to))
	if _, err := bucket(t, to, topology.BucketLogins).
		Get(t.Context(), "session.a"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a login that was ended is there: %v", err)
	}
}

// An erasure causes a new generation, without what was erased.
func TestErasedLeavesTheCopy(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.config = func(o *transfer.CopierConfig) {
		o.MinRenew = 2 * time.Second
		o.Skip = func(ctx context.Context) (transfer.Skip, error) {
			_, err := c.conn.Last(ctx, topology.BucketStream(topology.BucketStore),
				topology.BucketSubject(topology.BucketStore, "erased.s1"))
			return func(_, subject string) bool {
				return err == nil &&
					strings.HasPrefix(subject, "completion.s1")
			}, nil
		}
	}
	c.start(t)
	publish(t, c.conn, "completion.s1", "outcome")
	c.upToDate(t)
	renewed := c.copier.State().Renewed
	publish(t, c.conn, topology.BucketSubject(topology.BucketStore, "erased.s1"), "{}")
	natstest.Await(t, "a new generation", func() bool { return c.copier.State().Renewed.After(renewed) })
	c.stop()
	if _, err := c.restored(t).
		Last(t.Context(), topology.StreamCompletions, "completion.s1"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("what was erased: %v", err)
	}
}

// An erasure causes a new generation though the copier stops before that is due.
func TestErasedLeavesTheCopyAfterARestart(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.start(t)
	publish(t, c.conn, "completion.s1", "outcome")
	publish(t, c.conn, topology.BucketSubject(topology.BucketStore, "erased.s1"), "{}")
	c.upToDate(t)
	renewed := c.copier.State().Renewed
	c.stop()
	c.config = func(o *transfer.CopierConfig) { o.MinRenew = time.Millisecond }
	c.start(t)
	natstest.Await(t, "a new generation", func() bool { return c.copier.State().Renewed.After(renewed) })
	c.stop()
}

// What is erased while a generation is made is not in the one after it, which follows by itself.
func TestErasedWhileAGenerationIsMade(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	made := 0
	c.config = func(o *transfer.CopierConfig) {
		o.MinRenew = 100 * time.Millisecond
		o.Skip = func(context.Context) (transfer.Skip, error) {
			if made++; made == 1 {
				publish(t, c.conn, topology.BucketSubject(topology.BucketStore, "erased.s1"), "{}")
			}
			return func(_, subject string) bool {
				return made > 1 && strings.HasPrefix(subject, "completion.s1")
			}, nil
		}
	}
	publish(t, c.conn, "completion.s1", "outcome")
	c.start(t)
	c.upToDate(t)
	renewed := c.copier.State().Renewed
	natstest.Await(t, "another generation", func() bool { return c.copier.State().Renewed.After(renewed) })
	c.stop()
	if _, err := c.restored(t).
		Last(t.Context(), topology.StreamCompletions, "completion.s1"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("what was erased: %v", err)
	}
}

// A store that lost its last messages, and reused their sequences, is not mistaken for the one that was
// copied.
func TestCopyOfAStoreThatLostMessages(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	fill(t, c.conn, 0)
	c.start(t)
	c.upToDate(t)
	c.stop()
	was := c.generation(t)
	other := &copied{dir: c.dir, key: c.key, data: t.TempDir()}
	other.conn, _ = natstest.StartIn(t, other.data)
	fill(t, other.conn, 5)
	fill(t, other.conn, 6)
	other.start(t)
	other.upToDate(t)
	other.stop()
	if now := other.generation(t); now == was {
		t.Error("the copy went on with another store's messages")
	}
	pair{other.conn, other.restored(t)}.equal(t, 320)
}

// A full or missing disk affects only the copy, which reports that, stays consistent, and catches up.
func TestCopySurvivesItsDisk(t *testing.T) {
	prove.Only(t, "disk", "it mounts a small filesystem, as root")
	t.Parallel()
	disk := t.TempDir()
	dir := filepath.Join(disk, "copy")
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatalf("this proof mounts a small filesystem, which takes root on Linux: %v", err)
	}
	defer func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := newCopied(t, dir)
	fill(t, c.conn, 0)
	c.start(t)
	c.upToDate(t)
	others, err := os.Create(filepath.Join(disk, "others"))
	if err != nil {
		t.Fatal(err)
	}
	round := 0
	full := func() { // of other files, and there is something to copy
		for err = nil; err == nil; {
			_, err = others.Write(make([]byte, 4<<10))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		round++
		publish(t, c.conn, topology.BucketSubject(topology.BucketSessions, fmt.Sprint(round%5)),
			strings.Repeat("x", 20<<10))
	}
	natstest.Await(t, "the copy to say that its disk is full", func() bool {
		full()
		return errors.Is(c.copier.State().Err, syscall.ENOSPC)
	})
	natstest.Await(t, "the copy to be behind", func() bool {
		full()
		return c.copier.State().Lag(time.Now()) > transfer.MaxCopyLag
	})
	if err := others.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Errorf("the copy on a full disk: %v", err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	c.upToDate(t)
	c.stop()
	if s := c.copier.State(); s.Err != nil || s.Failures == 0 {
		t.Errorf("after it has caught up: %+v", s)
	}
	pair{c.conn, c.restored(t)}.equal(t, 160)
	if err := syscall.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	natstest.Await(t, "the copy to say that its folder is not there", func() bool {
		return errors.Is(c.copier.State().Err, os.ErrNotExist)
	})
	if err := c.copier.Check(); err != nil {
		t.Errorf("a disk that is not there ends the start: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.upToDate(t)
}

// A folder that is not for a copy is refused, with what to do.
func TestCopyRefusesAFolder(t *testing.T) {
	t.Parallel()
	c := newCopied(t, t.TempDir())
	c.start(t)
	c.upToDate(t)
	other := &copied{data: t.TempDir(), key: c.key}
	other.conn, _ = natstest.StartIn(t, other.data)
	link := filepath.Join(t.TempDir(), "link")
	within := filepath.Join(other.data, "copy")
	full, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Mkdir(within, 0o700), os.Symlink(within, link),
		os.WriteFile(filepath.Join(full, "notes.txt"), nil, 0o600),
		os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refuses := func(dir, want string) {
		t.Helper()
		copier := transfer.NewCopier(transfer.CopierConfig{
			Conn: other.conn, DataDir: other.data, Dir: dir, Store: "another", Key: other.key,
			Log: zerolog.Nop(),
		})
		if err := copier.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q: %v", dir, want, err)
		}
	}
	refuses(within, "is in the data directory")
	refuses(link, "is in the data directory")
	refuses(other.data, "is in the data directory")
	refuses(full, "holds something else (notes.txt)")
	refuses(file, "is not a folder")
	refuses(c.dir, "is being written by another service")
	c.stop()
	refuses(c.dir, "holds the copy of another store")
	if _, err := os.Stat(filepath.Join(full, "verifyd-copy.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that was refused: %v", err)
	}
}
