package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5" //nolint:gosec // the format's; dpkg --verify finds damaged files by it
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// debian writes a package for Debian: deb(5).
func (b *builder) debian(w io.Writer, t target) error {
	files, err := b.installed(t, "vendor-completions", map[string]string{
		"usr/share/doc/verifyd/copyright":     scripts + "deb.copyright",
		"usr/share/lintian/overrides/verifyd": scripts + "deb.lintian",
	})
	if err != nil {
		return err
	}
	changes := fmt.Sprintf("verifyd (%s) unstable; urgency=medium\n\n"+
		"  * CHANGELOG.md lists what changed.\n\n -- %s  %s\n",
		b.packageVersion(), b.author, b.date.Format(time.RFC1123Z))
	packed, err := gzipped([]byte(changes), gzip.BestCompression)
	if err != nil {
		return err
	}
	files = append(files, file{name: "usr/share/doc/verifyd/changelog.gz", mode: 0o644, data: packed})
	data := withFolders(files)
	var sums, configs strings.Builder
	var size int64
	for _, f := range data {
		size += int64(len(f.data))
		switch name := strings.TrimPrefix(f.name, "./"); {
		case f.config:
			fmt.Fprintf(&configs, "/%s\n", name)
		case !f.folder:
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), name) //nolint:gosec // see above
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
		{"postinst", []string{"user.sh", "deb.postinst"}}, {"postrm", []string{"store.sh", "deb.postrm"}},
		{"prerm", []string{"deb.prerm"}},
	} {
		text, err := b.script("#!/bin/sh\nset -e\n", s.of...)
		if err != nil {
			return err
		}
		control = append(control, file{name: s.name, mode: 0o755, data: []byte(text)})
	}
	return writeAr(w, b.date, []member{
		{"debian-binary", func(w io.Writer) error { _, err := io.WriteString(w, "2.0\n"); return err }},
		{"control.tar.gz", func(w io.Writer) error { return writeTarGz(w, withFolders(control), b.date) }},
		{"data.tar.gz", func(w io.Writer) error { return writeTarGz(w, data, b.date) }},
	})
}

// debianControl returns the description of the package. passwd makes the user; without certificates of
// authorities no identity network and no receiver is believed.
func (b *builder) debianControl(t target, size int64) string {
	return strings.Join([]string{
		"Package: verifyd", "Version: " + b.packageVersion(), "Architecture: " + t.arch,
		"Maintainer: " + b.author, fmt.Sprint("Installed-Size: ", (size+1023)/1024),
		"Depends: ca-certificates, passwd", "Section: net", "Priority: optional",
		"Description: " + summary, " " + strings.ReplaceAll(description, "\n", "\n "), "",
	}, "\n")
}

// withFolders returns files as dpkg and rpm list them: sorted, each below ./, and after its folders.
func withFolders(files []file) (all []file) {
	slices.SortFunc(files, func(x, y file) int { return strings.Compare(x.name, y.name) })
	seen := map[string]bool{}
	var add func(f file)
	add = func(f file) {
		if seen[f.name] {
			return
		}
		seen[f.name] = true
		if f.name != "." {
			add(file{name: path.Dir(f.name), mode: 0o755, folder: true})
			f.name = "./" + f.name
		}
		all = append(all, f)
	}
	for _, f := range files {
		add(f)
	}
	return all
}

// member is one of an archive of ar(5).
type member struct {
	name string
	pack func(w io.Writer) error
}

// writeAr writes members with the time that they all have.
func writeAr(w io.Writer, at time.Time, members []member) error {
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range members {
		var data bytes.Buffer
		if err := m.pack(&data); err != nil {
			return err
		}
		header := fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, at.Unix(), 0, 0, "100644",
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
