package sdk

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// file is a file of a kit.
type file struct {
	name string
	data []byte
}

// npmEpoch is the time that npm itself writes into the archives that it makes.
var npmEpoch = time.Date(1985, time.October, 26, 8, 15, 0, 0, time.UTC)

// npmPackage makes what npm install takes: a compressed archive of a folder called package.
func npmPackage(files []file) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{
			Name: "package/" + f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: npmEpoch,
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, fmt.Errorf("pack the npm package: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack the npm package: %w", err)
	}
	return b.Bytes(), nil
}

// zipEpoch is the earliest time that a zip archive can hold.
var zipEpoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// wheel makes what pip install takes (the binary distribution format, PEP 427).
func wheel(version, summary string, files []file, readme []byte) ([]byte, error) {
	info := "verifyd-" + version + ".dist-info/"
	files = append(files,
		file{info + "METADATA", fmt.Appendf(nil, "Metadata-Version: 2.1\nName: verifyd\nVersion: %s\n"+
			"Summary: %s\nLicense: Apache-2.0\nRequires-Python: >=3.9\n"+
			"Description-Content-Type: text/markdown\n\n%s", version, summary, readme)},
		file{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: verifyd\n" +
			"Root-Is-Purelib: true\nTag: py3-none-any\n")},
	)
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]),
			len(f.data))
	}
	record.WriteString(info + "RECORD,,\n")
	files = append(files, file{info + "RECORD", []byte(record.String())})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: zipEpoch})
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack the wheel: %w", err)
	}
	return b.Bytes(), nil
}
