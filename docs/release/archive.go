package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// archives makes an archive for each target: both programs, what the shells and man want, and the documents,
// with the unit and the sample of the settings that they name.
func (b *builder) archives() error {
	documents, err := b.documents()
	if err != nil {
		return err
	}
	license, err := b.read("LICENSE")
	if err != nil {
		return err
	}
	for _, t := range b.targets {
		made := b.binaries[t]
		folder := fmt.Sprintf("verifyd_%s_%s", b.version, t)
		files := []file{
			{name: "verifyd" + t.suffix(), mode: 0o755, data: made.verifyd},
			{name: "verifyd-bench" + t.suffix(), mode: 0o755, data: made.bench},
			{name: "LICENSE", mode: 0o644, data: license},
		}
		files = slices.Concat(files, documents, b.extras)
		for i := range files {
			files[i].name = folder + "/" + files[i].name
		}
		ext, pack := ".tar.gz", writeTarGz
		if t.os == "windows" {
			ext, pack = ".zip", writeZip
		}
		if err := b.write(folder+ext, func(w io.Writer) error { return pack(w, files, b.date) }); err != nil {
			return err
		}
	}
	return nil
}

// writeTarGz writes files with the time that they all have.
func writeTarGz(w io.Writer, files []file, at time.Time) error {
	z := gzip.NewWriter(w) // its header has no time and no name
	if err := writeTar(z, files, at); err != nil {
		return err
	}
	return z.Close()
}

// nobody is the user of the Dockerfile's image, which exists on no system.
const nobody = 65532

// writeTar writes files that belong to root, or to the image's user.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: int64(f.mode), ModTime: at,
			Uname: "root", Gname: "root", Format: tar.FormatGNU,
		}
		if f.nobody {
			h.Uid, h.Gid, h.Uname, h.Gname = nobody, nobody, "", ""
		}
		if f.folder {
			h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(f.name, "/")+"/"
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// gzipped returns data as gzip compresses it, with no name and no time.
func gzipped(data []byte, level int) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, level)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(data)
	err = errors.Join(err, z.Close())
	return packed.Bytes(), err
}

// writeZip writes files with the time that they all have.
func writeZip(w io.Writer, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}
