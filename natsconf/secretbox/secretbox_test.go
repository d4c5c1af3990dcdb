package secretbox_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"verifyd/natsconf/secretbox"
)

func TestBoxOpensOnlyForItsKeyUseAndOwner(t *testing.T) {
	key := secretbox.NewKey()
	box := key.Box("callback-url").Seal([]byte("https://example.com/?token=1"), "sid-a")

	plain, err := key.Box("callback-url").Open(box, "sid-a")
	if err != nil || string(plain) != "https://example.com/?token=1" {
		t.Fatalf("open = %q, %v", plain, err)
	}
	if bytes.Contains(box, []byte("example")) {
		t.Fatal("the box shows its value")
	}
	for name, open := range map[string]func() ([]byte, error){
		"other owner": func() ([]byte, error) { return key.Box("callback-url").Open(box, "sid-b") },
		"other use":   func() ([]byte, error) { return key.Box("flow").Open(box, "sid-a") },
		"other key": func() ([]byte, error) {
			return secretbox.NewKey().Box("callback-url").Open(box, "sid-a")
		},
		"cut short": func() ([]byte, error) { return key.Box("callback-url").Open(box[:12], "sid-a") },
		"empty":     func() ([]byte, error) { return key.Box("callback-url").Open(nil, "sid-a") },
	} {
		if plain, err := open(); err == nil {
			t.Errorf("%s: opened to %q", name, plain)
		}
	}
	for i := range box {
		altered := bytes.Clone(box)
		altered[i] ^= 1
		if _, err := key.Box("callback-url").Open(altered, "sid-a"); err == nil {
			t.Fatalf("opened with byte %d altered", i)
		}
	}
}

func TestLoadOrCreateKeepsOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	first, err := secretbox.LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := secretbox.LoadOrCreate(path)
	if err != nil || again != first {
		t.Fatalf("second load gave another key (%v)", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode = %v, %v; want 0600", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secretbox.LoadOrCreate(path); err == nil {
		t.Fatal("a damaged key file was accepted")
	}
}

func TestParseKeyReadsBothAlphabetsAndHidesItself(t *testing.T) {
	k := secretbox.NewKey()
	for _, s := range []string{k.Encode(), " " + k.Encode() + "\n"} {
		got, err := secretbox.ParseKey(s)
		if err != nil || got != k {
			t.Errorf("ParseKey(%q): %v", s, err)
		}
	}
	for _, bad := range []string{"", "abc", "%%%", k.Encode() + "AA"} {
		if _, err := secretbox.ParseKey(bad); err == nil {
			t.Errorf("ParseKey(%q) accepted", bad)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); bytes.Contains([]byte(s), k[:8]) || len(s) > 100 {
		t.Errorf("a key prints itself: %s", s)
	}
}

func TestHashIsOfItsKeyAndUse(t *testing.T) {
	key := secretbox.NewKey()
	sum := key.Hash("identity").Sum("sailor")
	if len(sum) != 52 || sum != key.Hash("identity").Sum("sailor") {
		t.Fatalf("sum %q is not the same twice", sum)
	}
	for name, other := range map[string]string{
		"another text": key.Hash("identity").Sum("sailor "),
		"another use":  key.Hash("other").Sum("sailor"),
		"another key":  secretbox.NewKey().Hash("identity").Sum("sailor"),
	} {
		if other == sum {
			t.Errorf("%s has the same sum", name)
		}
	}
}
