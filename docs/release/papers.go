package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// boms makes a bill of materials for each target, CycloneDX 1.6, of what the linker has written into the
// binaries.
func (b *builder) boms() error {
	for _, t := range b.targets {
		modules, err := b.modules(t)
		if err != nil {
			return err
		}
		const self = "verifyd"
		components := []map[string]any{{
			"type": "library", "bom-ref": goPurl(), "name": "std", "version": goVersion(), "purl": goPurl(),
		}}
		refs := []string{goPurl()}
		for _, m := range modules {
			c := map[string]any{
				"type": "library", "bom-ref": purl(m), "name": m.Path, "version": m.Version, "purl": purl(m),
				"properties": []map[string]string{{"name": "go:sum", "value": m.Sum}},
			}
			components, refs = append(components, c), append(refs, purl(m))
		}
		doc := map[string]any{
			"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX",
			"specVersion": "1.6", "version": 1,
			"metadata": map[string]any{
				"timestamp": b.date.Format(time.RFC3339),
				"component": map[string]any{
					"type": "application", "bom-ref": self, "name": self, "version": b.version,
					"licenses": []any{map[string]any{"license": map[string]string{"id": "Apache-2.0"}}},
					"properties": []map[string]string{
						{"name": "commit", "value": b.commit}, {"name": "target", "value": t.String()},
						{"name": "sha256 of verifyd" + t.suffix(), "value": sum(b.binaries[t].verifyd)},
						{"name": "sha256 of verifyd-bench" + t.suffix(), "value": sum(b.binaries[t].bench)},
					},
				},
			},
			"components":   components,
			"dependencies": []map[string]any{{"ref": self, "dependsOn": refs}},
		}
		if err := b.writeJSON(fmt.Sprintf("verifyd_%s_%s.cdx.json", b.version, t), doc); err != nil {
			return err
		}
	}
	return nil
}

func goVersion() string { return strings.TrimPrefix(runtime.Version(), "go") }

// goPurl names Go with its standard library, as scanners of vulnerabilities know it.
func goPurl() string { return "pkg:golang/std@" + goVersion() }

func purl(m *debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// modules returns what the programs of some targets were linked from, sorted.
func (b *builder) modules(of ...target) (all []*debug.Module, err error) {
	for _, t := range of {
		for _, program := range [][]byte{b.binaries[t].verifyd, b.binaries[t].bench} {
			info, err := buildinfo.Read(bytes.NewReader(program))
			if err != nil {
				return nil, fmt.Errorf("the build info of %s: %w", t, err)
			}
			all = append(all, info.Deps...)
		}
	}
	return unique(all), nil
}

func unique(modules []*debug.Module) []*debug.Module {
	slices.SortFunc(modules, func(x, y *debug.Module) int { return cmp.Compare(purl(x), purl(y)) })
	return slices.CompactFunc(modules, func(x, y *debug.Module) bool { return purl(x) == purl(y) })
}

// provenance states what was built from what: an in-toto statement with SLSA's predicate for builds, version
// 1. It is not signed by itself; its sum is in SHA256SUMS, which the publisher signs.
func (b *builder) provenance() error {
	modules, err := b.modules(b.targets...)
	if err != nil {
		return err
	}
	if self, ok := debug.ReadBuildInfo(); ok { // of what packs: the certificates, and the writer of rpm
		modules = unique(append(modules, self.Deps...))
	}
	materials := []map[string]any{
		{"name": "source", "digest": map[string]string{"gitCommit": b.commit}},
		{"name": "go", "uri": goPurl()},
	}
	if b.changed {
		materials[0]["annotations"] = map[string]bool{"changed": true}
	}
	for _, m := range modules {
		hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil {
			return fmt.Errorf("the sum of %s: %w", m.Path, err)
		}
		materials = append(materials, map[string]any{
			"uri": purl(m), "digest": map[string]string{"dirHash": fmt.Sprintf("%x", hash)},
		})
	}
	subjects, err := b.subjects()
	if err != nil {
		return err
	}
	built := make([]string, 0, len(b.targets))
	for _, t := range b.targets {
		built = append(built, t.String())
	}
	return b.writeJSON(fmt.Sprintf("verifyd_%s_provenance.intoto.json", b.version), map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": "urn:verifyd:docs/release/build:1",
				"externalParameters": map[string]any{
					"version": b.version, "commit": b.commit, "targets": built,
				},
				"resolvedDependencies": materials,
			},
			"runDetails": map[string]any{
				"builder": map[string]string{"id": "urn:verifyd:docs/release/build"},
			},
		},
	})
}

// subject is a file that was made.
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// subjects returns the files that were made so far, sorted.
func (b *builder) subjects() (all []subject, err error) {
	for _, name := range slices.Sorted(slices.Values(b.made)) {
		data, err := os.ReadFile(filepath.Join(b.out, name)) //nolint:gosec // just made
		if err != nil {
			return nil, err
		}
		all = append(all, subject{name, map[string]string{"sha256": sum(data)}})
	}
	return all, nil
}

// sums makes the list that sha256sum --check reads, of everything else.
func (b *builder) sums() error {
	subjects, err := b.subjects()
	if err != nil {
		return err
	}
	return b.write("SHA256SUMS", func(w io.Writer) error {
		for _, s := range subjects {
			if _, err := fmt.Fprintf(w, "%s  %s\n", s.Digest["sha256"], s.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeJSON writes a document of the release, for people to read, too.
func (b *builder) writeJSON(name string, v any) error {
	return b.write(name, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}
