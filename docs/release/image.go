package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Media types of the OCI image specification 1.1, and the form of its annotations.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	annotation   = "org.opencontainers.image."
)

// imageFolders are writable, so that volumes that are mounted there take their owner from them.
var imageFolders = []string{
	"data", "shared", "shared/dispatcher", "shared/edge", "shared/monitor", "shared/nats", "shared/operator",
	"shared/proxy", "shared/proxy-data", "shared/trust", "tmp",
}

// descriptor points to content.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blob returns the place of the content in the layout.
func (d descriptor) blob() string { return "blobs/sha256/" + d.Digest[len("sha256:"):] }

// layout is an OCI image layout, and next to it the older format of docker save, which some engines need.
type layout struct {
	files  []file
	known  map[string]bool
	legacy []map[string]any
}

func digest(data []byte) string { return "sha256:" + sum(data) }

// add adds content once.
func (l *layout) add(mediaType string, data []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
	if !l.known[d.Digest] {
		l.known[d.Digest] = true
		l.files = append(l.files, file{name: d.blob(), mode: 0o644, data: data})
	}
	return d
}

// addJSON adds a document.
func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, data), nil
}

// image makes one image for all Linux targets: what the Dockerfile makes, without an engine.
func (b *builder) image() error {
	l := layout{known: map[string]bool{}}
	l.files = append(l.files, file{
		name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`),
	})
	notes := map[string]string{
		annotation + "title": "verifyd", annotation + "version": b.version, annotation + "revision": b.commit,
		annotation + "created": b.date.Format(time.RFC3339), annotation + "licenses": "Apache-2.0",
	}
	var images []descriptor
	for _, t := range b.targets {
		if t.os != "linux" {
			continue
		}
		d, err := b.imageFor(&l, t, notes)
		if err != nil {
			return err
		}
		images = append(images, d)
	}
	if len(images) == 0 {
		return nil
	}
	index, err := l.addJSON(typeIndex, map[string]any{
		"schemaVersion": 2, "mediaType": typeIndex, "manifests": images, "annotations": notes,
	})
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{
		"io.containerd.image.name": "docker.io/library/verifyd:" + b.imageTag(),
		annotation + "ref.name":    b.imageTag(),
	}
	for name, v := range map[string]any{
		"index.json": map[string]any{
			"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{index},
		},
		"manifest.json": l.legacy,
	} {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		l.files = append(l.files, file{name: name, mode: 0o644, data: data})
	}
	return b.write(fmt.Sprintf("verifyd_%s_image.tar", b.version), func(w io.Writer) error {
		slices.SortFunc(l.files, func(x, y file) int { return cmp.Compare(x.name, y.name) })
		return writeTar(w, l.files, b.date)
	})
}

// imageFor adds the image of one target. Its settings are those of the Dockerfile.
func (b *builder) imageFor(l *layout, t target, notes map[string]string) (d descriptor, err error) {
	dockerfile, err := b.read("Dockerfile")
	if err != nil {
		return d, err
	}
	settings, err := settingsOf(string(dockerfile))
	if err != nil {
		return d, err
	}
	settings.Labels = notes
	base, err := baseLayer()
	if err != nil {
		return d, err
	}
	var layers []descriptor
	var ids, blobs []string
	for _, files := range [][]file{base, {{name: "verifyd", mode: 0o755, data: b.binaries[t].verifyd}}} {
		var raw bytes.Buffer
		if err := writeTar(&raw, files, b.date); err != nil {
			return d, err
		}
		packed, err := gzipped(raw.Bytes(), gzip.DefaultCompression)
		if err != nil {
			return d, err
		}
		layer := l.add(typeLayer, packed)
		layers, blobs = append(layers, layer), append(blobs, layer.blob())
		ids = append(ids, digest(raw.Bytes()))
	}
	at := b.date.Format(time.RFC3339)
	config, err := l.addJSON(typeConfig, map[string]any{
		"created": at, "architecture": t.arch, "os": t.os, "config": settings,
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
		"history": []map[string]string{
			{"created": at, "created_by": "certificates and folders"},
			{"created": at, "created_by": "verifyd"},
		},
	})
	if err != nil {
		return d, err
	}
	l.legacy = append(l.legacy, map[string]any{
		"Config": config.blob(), "Layers": blobs,
		"RepoTags": []string{"verifyd:" + b.imageTag() + "-" + t.arch},
	})
	d, err = l.addJSON(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": layers,
		"annotations": notes,
	})
	d.Platform = map[string]string{"os": t.os, "architecture": t.arch}
	return d, err
}

// baseLayer has the certificates of authorities and the folders. The authorities are those of Mozilla, of a
// module that go.sum pins, so that they do not depend on the building machine; one that Mozilla believes only
// for older certificates is left out, since a file cannot say that.
func baseLayer() (files []file, err error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	for _, name := range imageFolders {
		files = append(files, file{name: name, mode: 0o755, folder: true, nobody: true})
	}
	for _, name := range []string{"etc", "etc/ssl", "etc/ssl/certs"} {
		files = append(files, file{name: name, mode: 0o755, folder: true})
	}
	authorities := file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots.Bytes()}
	return append(files, authorities), nil
}
