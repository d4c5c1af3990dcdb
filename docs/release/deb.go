package main

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the format's; dpkg --verify finds damaged files by it
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// deb is a package for Debian: deb(5).
type deb struct {
	control, data []file
	at            time.Time
}

func (b *builder) debian(t target) (deb, error) {
	files, err := b.installed(t, "vendor-completions")
	if err != nil {
		return deb{}, err
	}
	var sums, configs strings.Builder
	var size int64
	for _, f := range files {
		size += int64(len(f.data))
		switch {
		case f.config:
			fmt.Fprintf(&configs, "/%s\n", f.name)
		case !f.folder:
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.name) //nolint:gosec // see above
		}
	}
	control := []file{
		{name: "conffiles", mode: 0o644, data: []byte(configs.String())},
		{name: "control", mode: 0o644, data: []byte(b.debianControl(t, size))},
		{name: "md5sums", mode: 0o644, data: []byte(sums.String())},
	}
	for _, s := range []struct {
		name string
		of   []string
	}{
		{"postinst", []string{"user.sh", "deb.postinst"}}, {"postrm", []string{"deb.postrm"}},
		{"prerm", []string{"deb.prerm"}},
	} {
		text, err := b.script("#!/bin/sh\nset -e\n", s.of...)
		if err != nil {
			return deb{}, err
		}
		control = append(control, file{name: s.name, mode: 0o755, data: []byte(text)})
	}
	return deb{withFolders(control), withFolders(files), b.date}, nil
}

// debianControl returns the description of the package. passwd makes the user; without certificates of
// authorities no identity network and no receiver is believed.
func (b *builder) debianControl(t target, size int64) string {
	return strings.Join([]string{
		"Package: verifyd", "Version: " + b.packageVersion(), "Architecture: " + t.arch,
		"Maintainer: " + b.author, fmt.Sprint("Installed-Size: ", (size+1023)/1024),
		"Depends: ca-certificates, passwd", "Section: net", "Priority: optional",
		"Description: " + summary, " " + description, "",
	}, "\n")
}

// withFolders returns files as dpkg lists them: each below ./, and after its folders.
func withFolders(files []file) (all []file) {
	seen := map[string]bool{}
	var folder func(name string)
	folder = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if name != "." {
			folder(path.Dir(name))
			name = "./" + name
		}
		all = append(all, file{name: name, mode: 0o755, folder: true})
	}
	for _, f := range files {
		if f.folder {
			folder(f.name)
			continue
		}
		folder(path.Dir(f.name))
		f.name = "./" + f.name
		all = append(all, f)
	}
	return all
}

// write writes the three members of the package, an archive of ar(5).
func (d deb) write(w io.Writer) error {
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		pack func(w io.Writer) error
	}{
		{"debian-binary", func(w io.Writer) error { _, err := io.WriteString(w, "2.0\n"); return err }},
		{"control.tar.gz", func(w io.Writer) error { return writeTarGz(w, d.control, d.at) }},
		{"data.tar.gz", func(w io.Writer) error { return writeTarGz(w, d.data, d.at) }},
	} {
		var data bytes.Buffer
		if err := m.pack(&data); err != nil {
			return err
		}
		header := fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, d.at.Unix(), 0, 0, "100644",
			data.Len())
		if data.Len()%2 == 1 {
			data.WriteByte('\n') // members begin at even places
		}
		if _, err := io.WriteString(w, header); err != nil {
			return err
		}
		if _, err := w.Write(data.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
