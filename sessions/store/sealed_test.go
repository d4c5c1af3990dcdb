package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
	"verifyd/sessions/recovery"
	"verifyd/sessions/timeline"
)

var raftWait = flag.Bool("raft-wait", false,
	"wait until the raft logs of three servers have let go of a destroyed key: some three minutes")

// planted are the strings of one user, none of which may be found. The receiver's answer names the user too.
var planted = []string{"MARKER_platform", "MARKER_user", "MARKER_guild", "MARKER_callback", "marker-host"}

var plantedRequest, otherRequest = sessions.Request{
	Account: "acc_a", Key: "key_k", Platform: planted[0], PlatformUserID: planted[1], GuildID: planted[2],
	CallbackURL: "https://" + planted[4] + "/" + planted[3],
}, sessions.Request{Account: "acc_a", Key: "key_k", Platform: "p", PlatformUserID: "somebody",

	CallbackURL: "https://other.example/"}

// sealedRig is a store on servers whose files the test can read.
type sealedRig struct {
	conn *natsconf.Conn
	dir  string // of the servers' files
	st   *Store
	key  secretbox.Key
	late bool // as if ten minutes had passed
}

func newSealedRig(t *testing.T, conn *natsconf.Conn, dir string) *sealedRig {
	t.Helper()
	r := &sealedRig{conn: conn, dir: dir, key: secretbox.NewKey()}
	r.st = r.store(t, Config{})
	return r
}

// store is another process, which has read no key yet.
func (r *sealedRig) store(t *testing.T, c Config) *Store {
	t.Helper()
	c.Conn, c.Key, c.Now = r.conn, r.key, func() time.Time {
		if r.late {
			return time.Now().Add(sessions.Lifetime + time.Second)
		}
		return time.Now()
	}
	c.Pending = natstest.Writer(t, r.conn, topology.BucketStream(topology.BucketSessions))
	c.Completions = natstest.Writer(t, r.conn, topology.StreamCompletions)
	return New(c)
}

// deliver completes and delivers a session.
func (r *sealedRig) deliver(t *testing.T, st *Store, req sessions.Request) sessions.Session {
	t.Helper()
	s, _, err := st.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	c, err := st.Complete(t.Context(), s, sessions.Outcome{State: sessions.Verified, Network: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Claim(t.Context(), facts.Claim{Session: s.ID, Number: 1, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	host := strings.Split(s.CallbackURL, "/")[2]
	said := facts.Result{
		Session: s.ID, Number: 1, Verdict: facts.VerdictRejected, Status: 500, Detail: host + " said no",
		Answer: "no, " + s.PlatformUserID, At: time.Now(),
	}
	if _, err := st.StoreResult(t.Context(), said.Of(c.Session)); err != nil {
		t.Fatal(err)
	}
	st.Emit(timeline.Event{Name: timeline.EventNotSent, Detail: host + " was not there"}.Of(c.Session))
	natstest.Await(t, "the event is stored", func() bool {
		_, err := r.conn.Last(t.Context(), topology.StreamEvents, records.EventSubject("*", s.ID))
		return err == nil
	})
	return s
}

// read returns the streams that hold one of some texts in a readable message.
func (r *sealedRig) read(t *testing.T, texts ...string) (streams []string) {
	t.Helper()
	for _, s := range topology.New(topology.Options{}).Streams {
		_, last, err := r.conn.Bounds(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		err = r.conn.Pages(t.Context(), s.Name, ">", 1, last, func(msgs []jetstream.Msg) error {
			for _, m := range msgs {
				all := m.Subject() + fmt.Sprint(m.Headers()) + string(m.Data())
				if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(all, text) }) {
					streams = append(streams, s.Name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return streams
}

// files returns the servers' files that hold one of some texts.
func (r *sealedRig) files(t *testing.T, texts ...string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // a server rewrites files
			return nil
		}
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(b, []byte(text)) }) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// page returns some stored bytes of the page with a session's key: enough to recognize it.
func (r *sealedRig) page(t *testing.T, s sessions.Session) string {
	t.Helper()
	m, err := r.conn.Last(t.Context(), topology.StreamSessionKeys, records.PageSubject(s.SealedUnder.Page))
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Data[40:140])
}

func plantedPerson(s sessions.Session) erasure.Person {
	return erasure.Person{
		Account: s.Account, PlatformUserID: s.PlatformUserID,
		HoldUsersOf: func(sessions.Session) []string { return nil },
	}
}

// erases erases a user, of whom nothing must be found then except in the returned files: those that hold the
// old page of the key, recognized by its bytes.
func (r *sealedRig) erases(t *testing.T) (left []string, destroyed string) {
	t.Helper()
	gone := r.deliver(t, r.st, plantedRequest)
	stays := r.deliver(t, r.st, otherRequest)
	if gone.SealedUnder.Page != stays.SealedUnder.Page || gone.SealedUnder == stays.SealedUnder {
		t.Fatalf("keys %v and %v: this test wants two keys of one page", gone.SealedUnder, stays.SealedUnder)
	}
	before := r.page(t, gone)
	if len(r.files(t, before)) == 0 {
		t.Fatal("no file holds the key's page: this test finds nothing")
	}
	if _, entries, err := r.store(t, Config{}).Timeline(t.Context(), gone.ID); err != nil ||
		!slices.ContainsFunc(entries, func(e timeline.Entry) bool {
			return e.Event != nil && e.Event.Detail == planted[4]+" was not there"
		}) {
		t.Errorf("the timeline before: %+v, %v", entries, err)
	}
	if v, err := r.store(t, Config{}).Read(t.Context(), gone.ID); err != nil ||
		v.PlatformUserID != planted[1] ||
		v.CallbackURL != plantedRequest.CallbackURL ||
		v.Delivery.Attempts[0].Result.Answer != "no, "+v.PlatformUserID {
		t.Fatalf("before: %+v, %v", v, err)
	}
	r.late = true
	want := erasure.Erasure{Sessions: 1, Outcomes: 1}
	for _, dry := range []bool{true, false} {
		if e, err := r.store(t, Config{}).Erase(t.Context(), plantedPerson(gone), dry); err != nil ||
			e != want {
			t.Fatalf("dry %t: %+v, %v", dry, e, err)
		}
	}
	for _, st := range []*Store{r.st, r.store(t, Config{})} { // one has the key's page in memory
		if _, err := st.Read(t.Context(), gone.ID); !errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("read: %v", err)
		}
		if v, err := st.Read(t.Context(), stays.ID); err != nil || v.PlatformUserID != "somebody" ||
			v.Delivery.Attempts[0].Result.Answer != "no, "+v.PlatformUserID {
			t.Errorf("somebody else's: %+v, %v", v, err)
		}
	}
	m, err := r.conn.Last(t.Context(), topology.StreamCompletions, records.CompletionSubject(gone.ID))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.store(t, Config{}).
		DecodeCompletion(t.Context(), m.Subject, m.Header, m.Data); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("the fact is given out again: %+v, %v", c, err)
	}
	if streams := r.read(t, append(planted, before)...); len(streams) != 0 {
		t.Errorf("the user, or the key, is read over NATS in %v", streams)
	}
	if files := r.files(t, planted...); len(files) != 0 {
		t.Errorf("the user is in %v", files)
	}
	return r.files(t, before), before
}

// After an erasure no file of the store holds anything of the user, nor the key that would unseal what is
// left of their sessions.
func TestErasedUserIsInNoFile(t *testing.T) {
	natstest.NeedsEmbedded(t, "it reads the server's files; the next test does on three")
	t.Parallel()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	if left, _ := newSealedRig(t, conn, dir).erases(t); len(left) != 0 {
		t.Errorf("the destroyed key is in %v", left)
	}
}

// On three servers it is the same in each one's files of messages. Their raft logs hold what was written to
// them until the next snapshot of the stream, two to three minutes later: the key, sealed under the master
// key, and never the user.
func TestErasedUserIsInNoFileOfThreeServers(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	r := newSealedRig(t, conn, trio.Dir())
	left, destroyed := r.erases(t)
	for _, file := range left {
		if !strings.Contains(file, "_js_") {
			t.Errorf("the destroyed key is in %s", file)
		}
	}
	for begun := time.Now(); *raftWait && len(left) > 0; left = r.files(t, destroyed) {
		if time.Since(begun) > 10*time.Minute {
			t.Fatalf("the destroyed key is still in %v", left)
		}
		t.Logf("after %s in %d raft logs", time.Since(begun).Round(time.Second), len(left))
		<-time.After(5 * time.Second)
	}
}

// An interrupted erasure is completed by the next one, whoever is erased then: nothing else leads to such a
// session.
func TestErasureThatWasCutOffIsEnded(t *testing.T) {
	natstest.NeedsEmbedded(t, "it reads the server's files")
	t.Parallel()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	r := newSealedRig(t, conn, dir)
	nobody := erasure.Person{
		Account: "acc_b", PlatformUserID: "nobody",
		HoldUsersOf: func(sessions.Session) []string { return nil },
	}
	for name, until := range map[string]func(sessions.Session) error{
		"the note":     func(sessions.Session) error { return nil },
		"the new page": func(s sessions.Session) error { return r.storeWithout(t, s.SealedUnder) },
		"the key":      func(s sessions.Session) error { return r.st.DestroyKey(t.Context(), s.SealedUnder) },
	} {
		r.late = false
		s := r.deliver(t, r.st, plantedRequest)
		before := r.page(t, s)
		r.late = true
		note := records.ErasedRecord{Account: s.Account, Page: s.SealedUnder.Page, Slot: s.SealedUnder.Slot}
		if err := errors.Join(r.note(t, s.ID, note), until(s)); err != nil {
			t.Fatal(err)
		}
		if e, err := r.store(t, Config{}).Erase(t.Context(), nobody, false); err != nil ||
			e != (erasure.Erasure{}) {
			t.Errorf("cut off after %s: %+v, %v", name, e, err)
		}
		if m, err := conn.Last(t.Context(), topology.BucketStream(topology.BucketSessions),
			records.RecordSubject(s.Account, s.ID)); err != nil || !natsconf.IsMarker(m.Header) {
			t.Errorf("cut off after %s: the record is there: %v", name, err)
		}
		if files := r.files(t, before); len(files) != 0 {
			t.Errorf("cut off after %s: the key is in %v", name, files)
		}
		if notes, err := r.st.ErasedRecords(t.Context()); err != nil || notes[s.ID].Account != "" {
			t.Errorf("cut off after %s: %+v is noted, %v", name, notes[s.ID], err)
		}
	}
}

// note stores that a session must not be read, as an erasure does.
func (r *sealedRig) note(t *testing.T, id sessions.ID, note records.ErasedRecord) error {
	t.Helper()
	note.Version, note.At = 1, r.st.Instant()
	data, err := records.EncodeRecord(note)
	if err != nil {
		return err
	}
	return r.conn.PublishOne(t.Context(), topology.BucketStream(topology.BucketStore),
		&nats.Msg{Subject: records.ErasedSubject(id), Data: data})
}

// storeWithout stores a page without a key, in addition to the old one.
func (r *sealedRig) storeWithout(t *testing.T, ref sessions.KeyRef) error {
	t.Helper()
	box := r.key.Box("session-keys")
	last, err := r.conn.Last(t.Context(), topology.StreamSessionKeys, records.PageSubject(ref.Page))
	if err != nil {
		return err
	}
	var page struct {
		Version int    `json:"v"`
		Keys    []byte `json:"keys"`
	}
	if err := json.Unmarshal(last.Data, &page); err != nil {
		return err
	}
	keys, err := box.Open(page.Keys, ref.Page)
	if err != nil {
		return err
	}
	clear(keys[ref.Slot*secretbox.KeyBytes : (ref.Slot+1)*secretbox.KeyBytes])
	page.Keys = box.Seal(keys, ref.Page)
	data, err := json.Marshal(page)
	if err != nil {
		return err
	}
	return r.conn.PublishOne(t.Context(), topology.StreamSessionKeys,
		&nats.Msg{Subject: records.PageSubject(ref.Page), Data: data})
}

// A session of an older build, and one that this build stores so that such builds can read it, is read,
// completed and erased; its texts stay in plaintext until they age out, and the erasure reports until when.
func TestPlainSessionsAreReadAndErased(t *testing.T) {
	t.Parallel()
	r := newSealedRig(t, natstest.Start(t), "")
	plain := r.store(t, Config{Plain: true})
	s := r.deliver(t, plain, plantedRequest)
	for stream, subject := range map[string]string{
		topology.BucketStream(topology.BucketSessions): records.RecordSubject(s.Account, s.ID),
		topology.StreamCompletions:                     records.CompletionSubject(s.ID),
	} {
		m, err := r.conn.Last(t.Context(), stream, subject)
		if err != nil {
			t.Fatal(err)
		}
		var stored struct {
			Version int    `json:"v"`
			User    string `json:"platform_user_id"`
			Sealed  []byte `json:"callback"`
		}
		if err := json.Unmarshal(m.Data, &stored); err != nil || stored.Version != 1 ||
			stored.User != s.PlatformUserID || len(stored.Sealed) == 0 {
			t.Errorf("%s: %s, %v", subject, m.Data, err)
		}
	}
	if v, err := r.st.Read(t.Context(), s.ID); err != nil || v.CallbackURL != s.CallbackURL ||
		v.Delivery.Attempts[0].Result.Answer != "no, "+v.PlatformUserID {
		t.Errorf("read: %+v, %v", v, err)
	}
	r.late = true
	for _, dry := range []bool{true, false} {
		e, err := r.st.Erase(t.Context(), plantedPerson(s), dry)
		if left := time.Until(e.Until); err != nil || left < 71*time.Hour || left > 73*time.Hour {
			t.Errorf("dry %t: %+v, %v", dry, e, err)
		}
		if e.Until = (time.Time{}); e != (erasure.Erasure{Sessions: 1, Outcomes: 1, Clear: 1}) {
			t.Errorf("dry %t: %+v", dry, e)
		}
	}
	if _, err := r.st.Read(t.Context(), s.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("read after the erasure: %v", err)
	}
}

// In a moved store, an outcome in clear text stays in the files after the time until which it is read. The
// erasure counts it until it leaves.
func TestPlainOutcomeIsFoundAfterItsTime(t *testing.T) {
	t.Parallel()
	old := newSealedRig(t, natstest.Start(t), "")
	s := old.deliver(t, old.store(t, Config{Plain: true}), plantedRequest)
	m, err := old.conn.Last(t.Context(), topology.StreamCompletions, records.CompletionSubject(s.ID))
	if err != nil {
		t.Fatal(err)
	}
	r := newSealedRig(t, natstest.Start(t), "")
	r.key, r.late = old.key, true
	brought := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	natsconf.Origin{Sequence: 1, Stored: m.Time, Until: time.Now()}.Put(brought.Header)
	if err := r.conn.PublishOne(t.Context(), topology.StreamCompletions, brought); err != nil {
		t.Fatal(err)
	}
	st := r.store(t, Config{})
	if _, err := st.Read(t.Context(), s.ID); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("it is read: %v", err)
	}
	for _, dry := range []bool{true, false} {
		e, err := st.Erase(t.Context(), plantedPerson(s), dry)
		if left := time.Until(e.Until); err != nil || e.Clear != 1 || left < 71*time.Hour ||
			left > 73*time.Hour {
			t.Errorf("dry %t: %+v, %v", dry, e, err)
		}
	}
}

// A lost page is damage, not an erasure: its sessions are not reported as unknown. The end of a session is
// read without its user; a session that has not ended is closed, and none is reported as planted.
func TestLostKeyIsNoErasure(t *testing.T) {
	t.Parallel()
	r := newSealedRig(t, natstest.Start(t), "")
	s := r.deliver(t, r.st, plantedRequest)
	open, _, err := r.st.Create(t.Context(), plantedRequest)
	if err != nil || open.SealedUnder.Page != s.SealedUnder.Page {
		t.Fatalf("%+v, %v", open, err)
	}
	if err := r.conn.Destroy(t.Context(), topology.StreamSessionKeys, records.PageSubject(s.SealedUnder.Page),
		0); err != nil {
		t.Fatal(err)
	}
	told := 0
	st := r.store(t, Config{OnUnreadable: func(*facts.UnreadableError) { told++ }})
	v, err := st.Read(t.Context(), s.ID)
	if err != nil || !v.Lost || v.State != sessions.Verified || v.Delivery.State != facts.DeliveryRejected ||
		v.CallbackURL != "" {
		t.Errorf("read: %+v, %v", v, err)
	}
	for name, was := range map[string]sessions.Session{"ended": s, "open": open} { // as read before the loss
		_, err := st.ReadOpen(t.Context(), was.ID)
		if !errors.Is(err, sessions.ErrExpired) || !errors.Is(err, facts.ErrUnreadable) ||
			errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("%s: read to be completed: %v", name, err)
		}
		_, err = st.Complete(t.Context(), was, sessions.Outcome{State: sessions.Failed})
		if !errors.Is(err, facts.ErrUnreadable) || errors.Is(err, sessions.ErrNotFound) {
			t.Errorf("%s: complete: %v", name, err)
		}
	}
	lost := func(when string) {
		t.Helper()
		if v, err := st.Read(t.Context(), open.ID); err != nil || !v.Lost || v.State != sessions.Expired ||
			v.Reason != sessions.LostReason {
			t.Errorf("%s: read: %+v, %v", when, v, err)
		}
	}
	lost("while it could be completed")
	for _, closed := range []int{1, 0} {
		if k, err := st.CloseKeyless(t.Context()); err != nil ||
			k != (recovery.Keyless{Sessions: 2, Closed: closed}) {
			t.Errorf("close: %+v, %v", k, err)
		}
	}
	r.late = true
	lost("closed, and late")
	if told > 0 {
		t.Errorf("told %d times of facts that nobody has written", told)
	}
	natstest.Publish(t, r.conn, records.PageSubject(s.SealedUnder.Page), []byte(`{"v":2}`))
	if _, err := st.Read(t.Context(), s.ID); !errors.Is(err, natsconf.ErrNewer) {
		t.Errorf("a newer build's page: %v", err)
	}
}

// The request of an idempotency key is recognized by a keyed hash, against which guesses of a user cannot be
// tested. Builds that store only the hash and this one read each other's records, while such builds run
// concurrently.
func TestIdempotencyRevealsNothingOfTheRequest(t *testing.T) {
	t.Parallel()
	r := newSealedRig(t, natstest.Start(t), "")
	keyed := natstest.Writer(t, r.conn, topology.BucketStream(topology.BucketIdempotency))
	for _, plain := range []bool{true, false} {
		k := IdempotencyKey{
			Account: "acc_a", Key: fmt.Sprint(plain), Fingerprint: sha256.Sum256([]byte(planted[1])),
		}
		reservation, err := r.store(t, Config{Plain: plain, Idempotency: keyed}).Reserve(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.conn.Last(t.Context(), topology.BucketStream(topology.BucketIdempotency),
			reservationSubject(k))
		if err != nil {
			t.Fatal(err)
		}
		if told := bytes.Contains(m.Data,
			[]byte(base64.StdEncoding.EncodeToString(k.Fingerprint[:]))); told != plain {
			t.Errorf("plain %t: %s", plain, m.Data)
		}
		st := r.store(t, Config{Idempotency: keyed})
		if _, _, err := st.Commit(t.Context(), reservation, plantedRequest); err != nil {
			t.Fatal(err)
		}
		if again, err := st.Reserve(t.Context(), k); err != nil || again.Session == nil ||
			again.Session.PlatformUserID != planted[1] {
			t.Errorf("plain %t: a repeat leads to %+v, %v", plain, again, err)
		}
		k.Fingerprint[0]++
		if _, err := st.Reserve(t.Context(), k); !errors.Is(err, ErrKeyReused) {
			t.Errorf("plain %t: another request: %v", plain, err)
		}
	}
}
