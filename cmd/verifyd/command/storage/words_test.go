package storage

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/move"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// A move reports what it did, also if finishing was interrupted, nothing runs, or it has ended before.
func TestMoveReportsWhatItDid(t *testing.T) {
	open, leaving := storestate.Record{State: storestate.StateOpen}, storestate.Record{
		State: storestate.StateDraining, Where: "nats://b:4222", At: time.Now(),
	}
	for _, c := range []struct {
		equal, running bool
		old            storestate.Record
		want, not      string
	}{
		{true, true, open, "hold the same. The old one is the one to serve", "kept running"},
		{false, true, open, "has kept running meanwhile; run this again", "differ"},
		{false, false, open, "has removed something", "kept running"},
		{true, true, leaving, "has not ended: this store is being moved to nats://b:4222",
			"the one to serve"},
		{false, true, leaving, "verifyd move --abort", "kept running"},
	} {
		if text := comparedText(c.equal, c.running, c.old); !strings.Contains(text, c.want) ||
			strings.Contains(text, c.not) {
			t.Errorf("equal %t, running %t, %s: %s", c.equal, c.running, c.old.State, text)
		}
	}
	if text := (Move{To: "nats://b:4222"}).
		finishedText(); !strings.Contains(text, "data directory can be deleted") {
		t.Error(text)
	}
	if text := (Move{To: "nats://b:4222",
		Local: command.Local{Store: command.Store{StoreSettings: config.StoreSettings{
			NATSURL: "nats://a:4222",
		}}}}).
		finishedText(); strings.Contains(text, "data directory") {
		t.Error(text)
	}
	settings := config.StoreSettings{
		NATSURL: "nats://a:4222", NATSCreds: "a.nk", NATSCAFile: "a.pem", SecretKey: "k",
	}
	on := command.Local{Store: command.Store{StoreSettings: settings}}
	text := Move{Local: on, To: "tls://b:4222", ToCAFile: "b.pem", ToReplicas: 5}.finishedText()
	for _, want := range []string{
		"VERIFYD_NATS_URL=tls://b:4222\n", "VERIFYD_REPLICAS=5\n", "without VERIFYD_NATS_CREDS\n",
		"VERIFYD_NATS_CA_FILE=b.pem\n",
	} {
		if !strings.Contains(text, "\n  "+want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "SECRET") || strings.Contains(text, "VERIFYD_COPY_TO") {
		t.Error(text)
	}
}

// A restore prints what it restored: logins that are left out are not counted, and a repeat does not claim
// what the previous run has ended.
func TestRestoreReportsWhatItDid(t *testing.T) {
	var b bytes.Buffer
	held := []transfer.Held{{Asset: "COMPLETIONS", Count: 7}, {Asset: "KV_logins", Count: 3}}
	if err := (Restore{}).printRestored(command.Console{Err: &b}, held, []transfer.Report{
		{Stream: "COMPLETIONS", Filled: 5},
	}); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(rows, "COMPLETIONS 7 5") ||
		!strings.Contains(rows, "KV_logins 3 0") || !strings.Contains(rows, "was a login") {
		t.Error(rows)
	}
	h := transfer.Header{CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	if text := endedText(h, 2, 1, false); !strings.Contains(text,
		"has ended: 2 deliveries are unknown now, and the 1 sessions that were open have expired") ||
		strings.Contains(text, "those seconds") || strings.Contains(text, "not counted") {
		t.Error(text)
	}
	if text := endedText(h, 2, 1, true); !strings.Contains(text, "are not counted") {
		t.Error(text)
	}
	h.Format = "verifyd copy"
	if text := endedText(h, 2, 1, false); !strings.Contains(text, "of those seconds are not known here") {
		t.Error(text)
	}
	for _, c := range []struct {
		header transfer.Header
		want   string
	}{
		{transfer.Header{}, "--go-on continues from it"},
		{transfer.Header{Running: true}, "a restore ends"},
		{transfer.Header{Leaving: true, Running: true}, "sends nothing that was due"},
	} {
		if text := (madeBackup{header: c.header}).text("FILE"); !strings.Contains(text, c.want) ||
			!strings.Contains(text, "The backup FILE is complete") {
			t.Error(text)
		}
	}
}

// A backup of a store that was moved cannot be restored as if nothing had happened since: the new store sends
// what was due.
func TestRestoreOfAMovedStoreDoesNotGoOn(t *testing.T) {
	t.Parallel()
	key := secretbox.NewKey()
	open := func(why store.Purpose) *store.Store {
		st, err := store.Open(t.Context(), config.Store{
			DataDir: t.TempDir(), Sync: embedded.SyncAlways, StoreBytes: 64 << 20, Key: &key,
			Topology: topology.Options{Replicas: 1, Embedded: true},
		}, zerolog.Nop(), why)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		return st
	}
	m := &move.Move{From: open(store.ToServe), To: open(store.ToFill), Assets: store.Assets()}
	if err := m.Pair(t.Context(), "the old store"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := (Backup{}).write(t.Context(), m.From, &text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Restore{File: file, GoOn: true}.Run(t.Context(), command.Console{Err: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "moved elsewhere") {
		t.Errorf("restore --go-on: %v", err)
	}
}
