package main

import (
	"fmt"
	"io"

	"github.com/google/rpmpack"
)

// rpmArch is what rpm calls an architecture.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// What the permissions of a file begin with: stat(2).
const (
	modeFile   = 0o100000
	modeFolder = 0o040000
)

// rpm writes a package for Fedora, RHEL, openSUSE and their kin.
func (b *builder) rpm(w io.Writer, t target) error {
	files, err := b.installed(t, "site-functions")
	if err != nil {
		return err
	}
	files = append(files, file{name: "var/lib/verifyd", mode: 0o700, folder: true, own: true})
	meta := rpmpack.RPMMetaData{
		Name: "verifyd", Summary: summary, Description: description, Version: b.packageVersion(),
		Release: "1", Arch: rpmArch[t.arch], OS: "linux",
		Packager: b.author, Licence: "Apache-2.0", BuildHost: "localhost",
		BuildTime: b.date, Epoch: rpmpack.NoEpoch,
		Compressor: "gzip:6", // 9 takes thrice the time and saves less than a hundredth
	}
	for _, name := range []string{"ca-certificates", "/usr/sbin/useradd", "/usr/bin/getent"} {
		needed, err := rpmpack.NewRelation(name)
		if err != nil {
			return err
		}
		meta.Requires = append(meta.Requires, needed)
	}
	r, err := rpmpack.NewRPM(meta)
	if err != nil {
		return err
	}
	for _, f := range files {
		r.AddFile(b.rpmFile(f))
	}
	for _, s := range []struct {
		add func(text string)
		of  string
	}{
		{r.AddPrein, "user.sh"}, {r.AddPostin, "rpm.post"}, {r.AddPreun, "rpm.preun"},
		{r.AddPostun, "rpm.postun"},
	} {
		text, err := b.script("", s.of)
		if err != nil {
			return err
		}
		s.add(text)
	}
	if err := r.Write(w); err != nil {
		return fmt.Errorf("write the package: %w", err)
	}
	return nil
}

// rpmFile returns a file with its owner. A configuration that the operator has changed stays; the new one is
// put next to it.
func (b *builder) rpmFile(f file) rpmpack.RPMFile {
	r := rpmpack.RPMFile{
		Name: "/" + f.name, Body: f.data, Mode: uint(f.mode) | modeFile,
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
