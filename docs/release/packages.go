package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// packages makes a package for Debian and one for rpm for each Linux.
func (b *builder) packages() error {
	for _, t := range b.targets {
		if t.os != "linux" {
			continue
		}
		deb, err := b.debian(t)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("verifyd_%s_%s.deb", b.packageVersion(), t.arch)
		if err := b.write(name, deb.write); err != nil {
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
	description = "A server starts a session and sends its user to a link; the user signs in to an " +
		"identity network; verifyd tells the server the outcome in one signed POST."
)

// installed returns the files of a package, sorted, with its own folders. zsh reads completions elsewhere in
// each distribution. The bench is only in the archives: it measures machines, and is no part of a service.
func (b *builder) installed(t target, zsh string) ([]file, error) {
	files := []file{
		{name: "etc/verifyd", mode: 0o755, folder: true},
		{name: "usr/bin/verifyd", mode: 0o755, data: b.binaries[t].verifyd},
	}
	for name, from := range map[string]string{
		"etc/verifyd/config.yaml":                "docs/release/package/config.yaml",
		"usr/lib/systemd/system/verifyd.service": "docs/release/package/verifyd.service",
		"usr/share/doc/verifyd/README.md":        "README.md",
		"usr/share/doc/verifyd/CHANGELOG.md":     "CHANGELOG.md",
		"usr/share/doc/verifyd/CONFIGURATION.md": "docs/CONFIGURATION.md",
		"usr/share/doc/verifyd/copyright":        "LICENSE",
	} {
		data, err := b.read(from)
		if err != nil {
			return nil, err
		}
		f := file{name: name, mode: 0o644, data: data}
		if f.config = path.Ext(name) == ".yaml"; f.config {
			f.mode, f.own = 0o640, true // it may hold secrets
		}
		files = append(files, f)
	}
	for _, f := range b.extras {
		switch f.name {
		case "man/verifyd.1":
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write(f.data); err != nil {
				return nil, err
			}
			if err := z.Close(); err != nil {
				return nil, err
			}
			f.name, f.data = "usr/share/man/man1/verifyd.1.gz", packed.Bytes()
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
	slices.SortFunc(files, func(x, y file) int { return cmp.Compare(x.name, y.name) })
	return files, nil
}

// script returns what a package runs, of files in docs/release/package.
func (b *builder) script(first string, names ...string) (string, error) {
	var text strings.Builder
	text.WriteString(first)
	for _, name := range names {
		data, err := b.read("docs/release/package/" + name)
		if err != nil {
			return "", err
		}
		text.Write(data)
	}
	return text.String(), nil
}
