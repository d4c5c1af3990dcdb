package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
)

// packed returns a builder whose programs are words: what is packed, and how, shows without compiling.
func packed(t *testing.T) *builder {
	t.Helper()
	linux := target{"linux", "amd64"}
	return &builder{
		source: source{
			root: repository, version: "0.9.0", commit: strings.Repeat("c", 40),
			date: time.Date(2026, 11, 28, 12, 0, 1, 0, time.UTC), author: "Somebody <somebody@example.org>",
		},
		targets: []target{linux}, out: t.TempDir(), log: io.Discard,
		binaries: map[target]binaries{linux: {verifyd: []byte("the service"), bench: []byte("the bench")}},
		extras:   []file{{name: "man/verifyd.1", mode: 0o644, data: []byte("the manual")}},
	}
}

// What rpm2cpio prints unpacks into the folder where it is read, with the release's time. rpm's own lists
// have it where it is installed, and the folder of the documents. Digest and size are those of the payload.
func TestPayloadOfRPM(t *testing.T) {
	t.Parallel()
	b := packed(t)
	var whole bytes.Buffer
	if err := b.rpm(&whole, b.targets[0]); err != nil {
		t.Fatal(err)
	}
	rpm := whole.Bytes()
	signature, signed := headerOf(t, rpm[96:])
	signed = rpm[(len(rpm)-len(signed)+7)/8*8:]
	header, payload := headerOf(t, signed)
	if size := binary.BigEndian.Uint32(signature[1000]); int(size) != len(signed) {
		t.Errorf("the signature's header says %d bytes of %d", size, len(signed))
	}
	if digest, _, _ := bytes.Cut(header[5092], []byte{0}); string(digest) != sum(payload) {
		t.Errorf("the header says the digest %s of %s", digest, sum(payload))
	}
	folders := string(header[1118])
	if strings.Contains(folders, "./") || !strings.Contains(folders, "/usr/share/doc/\x00") {
		t.Errorf("the header's folders: %q", folders)
	}
	z, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]cpio.FileMode{}
	for r := cpio.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		if !strings.HasPrefix(h.Name, "./") || !h.ModTime.Equal(b.date) {
			t.Errorf("%s of %s", h.Name, h.ModTime)
		}
		if text, err := io.ReadAll(r); h.Name == "./usr/bin/verifyd" && string(text) != "the service" {
			t.Errorf("%s: %q, %v", h.Name, text, err)
		}
	}
	for name, want := range map[string]cpio.FileMode{
		"./usr/bin/verifyd": 0o100755, "./etc/verifyd/config.yaml": 0o100640, "./var/lib/verifyd": 0o40700,
		"./usr/share/doc/verifyd": 0o40755, "./usr/share/doc/verifyd/docs": 0o40755, "./usr/bin": 0,
	} {
		if modes[name] != want {
			t.Errorf("%s has the mode %s, want %s", name, modes[name], want)
		}
	}
}

// headerOf returns the values of a header of rpm by their tags, each with what follows it, and what is after
// the header.
func headerOf(t *testing.T, data []byte) (values map[int][]byte, rest []byte) {
	t.Helper()
	if !bytes.HasPrefix(data, []byte{0x8e, 0xad, 0xe8, 1}) {
		t.Fatalf("no header begins with %x", data[:4])
	}
	entries, size := binary.BigEndian.Uint32(data[8:]), binary.BigEndian.Uint32(data[12:])
	store := data[16+16*entries:]
	values = map[int][]byte{}
	for i := range entries {
		entry := data[16+16*i:]
		values[int(binary.BigEndian.Uint32(entry))] = store[binary.BigEndian.Uint32(entry[8:]):size]
	}
	return values, store[size:]
}

// The documents' links lead somewhere where a package installs them, and in an archive. The archive has the
// unit and the sample of the settings that docs/OPERATING.md names.
func TestDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	b := packed(t)
	installed, err := b.installed(b.targets[0], "somewhere", map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	inPackage := map[string][]byte{}
	for _, f := range installed {
		if name, ok := strings.CutPrefix(f.name, "usr/share/doc/verifyd/"); ok {
			inPackage[name] = f.data
		}
	}
	lead(t, "the package", inPackage)
	if err := b.archives(); err != nil {
		t.Fatal(err)
	}
	inArchive := untar(t, b.file(t, ".tar.gz"))
	lead(t, "the archive", inArchive)
	for _, name := range []string{scripts + "verifyd.service", scripts + "config.yaml"} {
		if !bytes.Equal(inArchive[name], read(t, filepath.Join(repository, name))) {
			t.Errorf("the archive has another %s, or none", name)
		}
	}
}

// lead fails the test if a document names a file or folder that is not there.
func lead(t *testing.T, where string, files map[string][]byte) {
	t.Helper()
	there := map[string]bool{}
	for name := range files {
		for ; name != "."; name = path.Dir(name) {
			there[name] = true
		}
	}
	count := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, to := range links(name, files[name]) {
			if count++; !there[to] {
				t.Errorf("in %s, %s links to %s, which is not there", where, name, to)
			}
		}
	}
	if count < 50 {
		t.Errorf("%s has only %d links", where, count)
	}
}

// untar returns the files of an archive, by their names in its one folder.
func untar(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if files[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Debian's own checks have nothing to object to in the package but what its overrides give reasons for, and
// no override is left over.
func TestLintian(t *testing.T) {
	t.Parallel()
	lintian := needs(t, "lintian")
	b := *release(t)
	b.author, b.out, b.made = "Somebody <somebody@example.org>", t.TempDir(), nil
	if err := b.packages(); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(lintian, "--allow-root", "--display-info", "--fail-on=error,warning",
		b.file(t, ".deb")).CombinedOutput()
	if err != nil || strings.Contains(string(said), "-override ") {
		t.Errorf("%v:\n%s", err, said)
	}
}
