package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cavaliergopher/cpio"
	"github.com/google/rpmpack"
)

// rpmArch is what rpm calls an architecture.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// What the permissions of a file begin with: stat(2).
const (
	modeFile   = 0o100000
	modeFolder = 0o040000
)

// Of the form of a package, what rpmpack keeps to itself: rpm's rpmtag.h.
const (
	leadBytes        = 96   // before the signature's header, which the package's follows
	tagSignedSize    = 1000 // in the signature's header, of the package's header and the payload
	tagPayloadDigest = 5092
)

// rpm writes a package for Fedora, RHEL, openSUSE and their kin.
func (b *builder) rpm(w io.Writer, t target) error {
	files, err := b.installed(t, "site-functions", map[string]string{
		"usr/share/licenses/verifyd/LICENSE": "LICENSE",
	})
	if err != nil {
		return err
	}
	files = append(files, file{name: "var/lib/verifyd", mode: 0o700, folder: true, own: true})
	r, err := b.rpmWithoutFiles(t)
	if err != nil {
		return err
	}
	var entries []rpmpack.RPMFile
	for _, f := range withFolders(files) {
		if !f.folder || strings.Contains(f.name+"/", "/verifyd/") { // other folders are the system's
			entries = append(entries, b.rpmFile(f))
			r.AddFile(b.rpmFile(f))
		}
	}
	payload, err := b.payload(entries)
	if err != nil {
		return err
	}
	r.AddCustomTag(tagPayloadDigest, rpmpack.EntryStringSlice([]string{sum(payload)}))
	var written bytes.Buffer
	if err := r.Write(&written); err != nil {
		return fmt.Errorf("write the package: %w", err)
	}
	_, err = w.Write(withPayload(written.Bytes(), payload))
	return err
}

// rpmWithoutFiles returns what is known of the package, and its scripts.
func (b *builder) rpmWithoutFiles(t target) (*rpmpack.RPM, error) {
	meta := rpmpack.RPMMetaData{
		Name: "verifyd", Summary: summary, Description: description, Version: b.packageVersion(),
		Release: "1", Arch: rpmArch[t.arch], OS: "linux",
		Packager: b.author, Licence: "Apache-2.0", BuildHost: "localhost",
		BuildTime: b.date, Epoch: rpmpack.NoEpoch,
		Compressor: "gzip:0", // withPayload replaces what it writes
	}
	for _, name := range []string{"ca-certificates", "/usr/sbin/useradd", "/usr/bin/getent"} {
		needed, err := rpmpack.NewRelation(name)
		if err != nil {
			return nil, err
		}
		meta.Requires = append(meta.Requires, needed)
	}
	r, err := rpmpack.NewRPM(meta)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		add func(text string)
		of  []string
	}{
		{r.AddPrein, []string{"user.sh"}}, {r.AddPostin, []string{"rpm.post"}},
		{r.AddPreun, []string{"store.sh", "rpm.preun"}}, {r.AddPostun, []string{"rpm.postun"}},
	} {
		text, err := b.script("", s.of...)
		if err != nil {
			return nil, err
		}
		s.add(text)
	}
	return r, nil
}

// rpmFile returns a file with its owner. A configuration that the operator has changed stays; the new one is
// put next to it.
func (b *builder) rpmFile(f file) rpmpack.RPMFile {
	r := rpmpack.RPMFile{
		Name: strings.TrimPrefix(f.name, "."), Body: f.data, Mode: uint(f.mode) | modeFile,
		Owner: "root", Group: "root", MTime: uint32(b.date.Unix()), //nolint:gosec // until 2106
	}
	if f.folder {
		r.Mode ^= modeFile | modeFolder
	}
	if f.own {
		r.Group = "verifyd"
	}
	if f.own && f.folder {
		r.Owner = "verifyd"
	}
	if f.config {
		r.Type = rpmpack.ConfigFile | rpmpack.NoReplaceFile
	}
	return r
}

// payload returns the archive of the files, in the form of cpio(5). rpmpack's own has absolute names, so that
// "rpm2cpio | cpio -id" would install it onto the system, and no times.
func (b *builder) payload(files []rpmpack.RPMFile) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	c := cpio.NewWriter(z)
	for _, f := range files {
		header := &cpio.Header{
			Name: "." + f.Name, Mode: cpio.FileMode(f.Mode), ModTime: b.date, //nolint:gosec // 16 bits
			Size: int64(len(f.Body)), Links: 1,
		}
		if err := c.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := c.Write(f.Body); err != nil {
			return nil, err
		}
	}
	err := errors.Join(c.Close(), z.Close())
	return packed.Bytes(), err
}

// withPayload returns a package with another payload, whose digest its header has already. The header of the
// signature, before it, has the size of both.
func withPayload(rpm, payload []byte) []byte {
	header := (headerEnd(rpm, leadBytes) + 7) / 8 * 8
	end := headerEnd(rpm, header)
	entries := int(binary.BigEndian.Uint32(rpm[leadBytes+8:]))
	values := rpm[leadBytes+16+16*entries:]
	for i := range entries {
		entry := rpm[leadBytes+16+16*i:]
		if binary.BigEndian.Uint32(entry) == tagSignedSize {
			at := binary.BigEndian.Uint32(entry[8:])
			size := uint32(end - header + len(payload)) //nolint:gosec // far below 4 GB
			binary.BigEndian.PutUint32(values[at:], size)
		}
	}
	return append(rpm[:end], payload...)
}

// headerEnd returns where a header ends that begins at a place: it has 16 bytes, as many for each entry, and
// the entries' values.
func headerEnd(rpm []byte, at int) int {
	entries, values := binary.BigEndian.Uint32(rpm[at+8:]), binary.BigEndian.Uint32(rpm[at+12:])
	return at + 16 + 16*int(entries) + int(values)
}
