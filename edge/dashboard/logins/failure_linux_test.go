package logins_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"verifyd/edge/dashboard/logins"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// The disk under the store has failed. No login is found in what the server still has in memory, and no
// change of one is confirmed.
func TestLoginsOfAFailedStoreAreNotFound(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the disk under its store")
	disk := natstest.NewDisk(t, filepath.Join(t.TempDir(), "store"))
	_, conn, _ := natstest.StartServer(t, embedded.Options{DataDir: disk.At})
	s := logins.NewStore(conn, secretbox.NewKey(), nil)
	token, l := begin(t, s, ada)

	disk.FailSyncs(t)
	other, err := os.Create(filepath.Join(disk.At, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.Sync(); err == nil {
		t.Fatal("the journal was written to a disk that takes nothing")
	}
	if _, err := s.Find(t.Context(), token); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("what is found: %v", err)
	}
	if err := s.EndAll(t.Context(), l); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("the end of all logins: %v", err)
	}
	if _, err := s.Begin(t.Context(), ada); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("a login: %v", err)
	}
}
