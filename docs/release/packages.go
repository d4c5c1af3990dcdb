package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"
)

// packages makes a package for Debian and one for rpm for each Linux.
func (b *builder) packages() error {
	for _, t := range b.targets {
		if t.os != "linux" {
			continue
		}
		name := fmt.Sprintf("verifyd_%s_%s.deb", b.packageVersion(), t.arch)
		if err := b.write(name, func(w io.Writer) error { return b.debian(w, t) }); err != nil {
			return err
		}
		name = fmt.Sprintf("verifyd-%s-1.%s.rpm", b.packageVersion(), rpmArch[t.arch])
		if err := b.write(name, func(w io.Writer) error { return b.rpm(w, t) }); err != nil {
			return err
		}
	}
	return nil
}

// What packages tell people.
const (
	summary     = "self-hosted identity verification"
	description = "A server starts a session and sends its user to a link; the user signs in\n" +
		"to an identity network; verifyd tells the server the outcome in one\nsigned POST."
)

// scripts are where the files are that only packages have.
const scripts = "docs/release/package/"

// installed returns the files that both kinds of packages have, and those of one kind, by the names that they
// get. zsh reads completions elsewhere in each distribution. The bench is only in the archives: it measures
// machines, and is no part of a service.
func (b *builder) installed(t target, zsh string, from map[string]string) ([]file, error) {
	files, err := b.documents()
	if err != nil {
		return nil, err
	}
	for i := range files {
		files[i].name = "usr/share/doc/verifyd/" + files[i].name
	}
	files = append(files, file{name: "usr/bin/verifyd", mode: 0o755, data: b.binaries[t].verifyd})
	from["etc/verifyd/config.yaml"] = scripts + "config.yaml"
	from["usr/lib/systemd/system/verifyd.service"] = scripts + "verifyd.service"
	for name, source := range from {
		f := file{name: name, mode: 0o644}
		if f.data, err = b.read(source); err != nil {
			return nil, err
		}
		if f.config = path.Ext(name) == ".yaml"; f.config {
			f.mode, f.own = 0o640, true // it may hold secrets
		}
		files = append(files, f)
	}
	for _, f := range b.extras {
		switch f.name {
		case "man/verifyd.1":
			f.name = "usr/share/man/man1/verifyd.1.gz"
			if f.data, err = gzipped(f.data, gzip.BestCompression); err != nil {
				return nil, err
			}
		case "completions/bash/verifyd":
			f.name = "usr/share/bash-completion/completions/verifyd"
		case "completions/zsh/_verifyd":
			f.name = "usr/share/zsh/" + zsh + "/_verifyd"
		case "completions/fish/verifyd.fish":
			f.name = "usr/share/fish/vendor_completions.d/verifyd.fish"
		default:
			continue
		}
		files = append(files, f)
	}
	return files, nil
}

// script returns what a package runs, of files in docs/release/package.
func (b *builder) script(first string, names ...string) (string, error) {
	var text strings.Builder
	text.WriteString(first)
	for _, name := range names {
		data, err := b.read(scripts + name)
		if err != nil {
			return "", err
		}
		text.Write(data)
	}
	return text.String(), nil
}
