package transfer

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
)

// The format of a backup: one line of JSON, a Header, ended by a newline; then chunks, sealed by
// the master key (chunkWriter). The chunks together hold a gzip stream of JSON lines. Each is one of:
// {"asset":"STREAM"}, from where on items are that stream's; {"item":{…}}, an Item;
// {"end":{"asset","count","digest"}}, the count and digest of the asset's items. An end for every asset, in
// their order, makes a backup whole.
const (
	backupFormat  = "verifyd backup"
	backupVersion = 1
	// rekeyedVersion is that of a backup, or a copy, that only opens with the master keys before the one that
	// it is sealed under. They are in it, and builds that know version 1 alone would not use them.
	rekeyedVersion = 2
	// maxHeader bounds the first line.
	maxHeader = 16 << 10
)

// Header is the part of a backup that can be read without the master key.
type Header struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	ID        string    `json:"id"`    // random
	Store     string    `json:"store"` // which store it is of
	CreatedAt time.Time `json:"created_at"`
	Build     string    `json:"build"`     // of verifyd
	KeyCheck  []byte    `json:"key_check"` // identifies the master key that sealed it
	// the store was moved elsewhere, or about to be: another may serve what it holds
	Leaving bool `json:"leaving,omitempty"`
	Running bool `json:"running,omitempty"` // the service ran while it was made, and so after it
	Rekeyed bool `json:"-"`                 // the store's master key was changed; the version shows it
	// if the operator asked for it: anyone who has the file can then read everything
	MasterKey string `json:"master_key,omitempty"`
}

// IsCopy reports whether it is a copy's.
func (h Header) IsCopy() bool { return h.Format == copyFormat }

// version is the version that this build writes.
func (h Header) version() int {
	if h.Rekeyed {
		return rekeyedVersion
	}
	return backupVersion
}

// isRead reports whether this build reads the version.
func (h Header) isRead() bool { return h.Version == backupVersion || h.Version == rekeyedVersion }

// The errors of a backup, in addition to ErrDamaged.
var (
	ErrNoBackup   = errors.New("this is not a backup of verifyd")
	ErrAnotherKey = errors.New("the backup was made with another master key")
)

// VersionError reports that a newer build made the backup.
type VersionError struct {
	Version int
	Build   string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the backup has version %d (made by verifyd %s), this build reads %d: restore "+
		"it with the newer verifyd", e.Version, e.Build, rekeyedVersion)
}

// line is one line of a backup.
type line struct {
	Asset string  `json:"asset,omitempty"`
	Item  *Item   `json:"item,omitempty"`
	End   *ending `json:"end,omitempty"`
}

type ending struct {
	Asset  string `json:"asset"`
	Count  uint64 `json:"count"`
	Digest string `json:"digest"`
}

// Held is how much of an asset a backup holds.
type Held struct {
	Asset string
	Count uint64
}

// Backup writes a store's assets, while the store is in service. Before it writes the end, which makes the
// backup whole, it calls still, which reports whether the header is still true. Its errors are
// natsconf.ErrUnavailable, w's and still's.
func Backup(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip, key secretbox.Key, h Header,
	w io.Writer, still func() error) ([]Held, error) {
	h.Format, h.Version, h.ID, h.KeyCheck = backupFormat, h.version(), rand.Text(), key.NewCheck()
	first, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the backup's header: %w", err)
	}
	if _, err := w.Write(append(first, '\n')); err != nil {
		return nil, err
	}
	chunks := &chunkWriter{w: w, box: key.Box(sealUse), backup: nameOf(first)}
	zip := gzip.NewWriter(chunks)
	lines := json.NewEncoder(zip)
	var held []Held
	for _, a := range assets {
		sum, err := backUp(ctx, c, a, skip, lines)
		if err != nil {
			return nil, err
		}
		held = append(held, Held{Asset: a.Stream, Count: sum.Count})
	}
	if err := still(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return held, chunks.Close()
}

func backUp(ctx context.Context, c *natsconf.Conn, a Asset, skip Skip, lines *json.Encoder) (sum Sum,
	err error) {
	if err := lines.Encode(line{Asset: a.Stream}); err != nil {
		return sum, err
	}
	err = Read(ctx, c, a, skip, 1, c.Clock.Now(), func(items []Item) error {
		for _, it := range items {
			sum.add(it)
			if err := lines.Encode(line{Item: &it}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	return sum, lines.Encode(line{End: &ending{Asset: a.Stream, Count: sum.Count, Digest: sum.Digest()}})
}

// nameOf binds the chunks to their header: a header that was changed opens none.
func nameOf(first []byte) string { return fmt.Sprintf("%x", sha256.Sum256(first)) }

// File is a backup to be read.
type File struct {
	Header Header

	first []byte
	r     io.ReadSeeker
}

// Head returns the header.
func (f *File) Head() Header { return f.Header }

// Close closes the file that the backup is read from, if it can be closed.
func (f *File) Close() error {
	if c, ok := f.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Open reads a backup's header. Its errors are ErrNoBackup, a *VersionError and r's.
func Open(r io.ReadSeeker) (*File, error) {
	b := bufio.NewReaderSize(r, maxHeader)
	first, err := b.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	f := &File{r: r}
	if err != nil || json.Unmarshal(first, &f.Header) != nil || f.Header.Format != backupFormat {
		return nil, ErrNoBackup
	}
	if !f.Header.isRead() {
		return nil, &VersionError{f.Header.Version, f.Header.Build}
	}
	f.first = append(f.first, first[:len(first)-1]...)
	return f, nil
}

// Check reads the whole backup, and compares it with the counts and digests that it ends with; see Source.
func (f *File) Check(key secretbox.Key, seen func(stream, subject string)) ([]Held, error) {
	var held []Held
	err := f.each(key, func(asset string, items []Item) error {
		for _, it := range items {
			seen(asset, it.Subject)
		}
		if len(held) == 0 || held[len(held)-1].Asset != asset {
			held = append(held, Held{Asset: asset})
		}
		return nil
	}, func(e ending) { held[len(held)-1].Count = e.Count })
	return held, err
}

// Restore fills a store; see Source.
func (f *File) Restore(ctx context.Context, c *natsconf.Conn, assets []Asset, skip Skip,
	key secretbox.Key) ([]Report, error) {
	return refillFrom(ctx, c, assets, skip, func(r *refill) error {
		return f.each(key, func(asset string, items []Item) error {
			for _, it := range items {
				one := r.wanting(asset, it.Subject, it.Origin.Sequence)
				if one == nil || it.over(r.now) {
					continue
				}
				if err := r.take(one, it); err != nil {
					return err
				}
			}
			return nil
		}, func(ending) {})
	})
}

// each reads the whole backup: page gets each asset's items, at least once for each asset, and end gets their
// count and digest, once these were found to be true.
func (f *File) each(key secretbox.Key, page func(asset string, items []Item) error, end func(ending)) error {
	if !key.Checks(f.Header.KeyCheck) {
		return ErrAnotherKey
	}
	if _, err := f.r.Seek(int64(len(f.first)+1), io.SeekStart); err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	chunks := &chunkReader{r: bufio.NewReader(f.r), box: key.Box(sealUse), backup: nameOf(f.first)}
	zip, err := gzip.NewReader(chunks)
	if err != nil {
		return damagedText(err)
	}
	r := backupReader{page: page, end: end}
	if err := r.read(zip); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, chunks) // to the last chunk
	return err
}

// damagedText replaces a decoder's error about a text that was sealed differently by what it means.
func damagedText(err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// backupReader is one reading of a backup.
type backupReader struct {
	page func(asset string, items []Item) error
	end  func(ending)

	asset string // whose items come now; empty: between two
	items []Item
	sum   Sum
}

// read reads all lines.
func (r *backupReader) read(from io.Reader) error {
	lines := json.NewDecoder(from)
	for {
		var l line
		err := lines.Decode(&l)
		switch {
		case errors.Is(err, io.EOF) && r.asset == "":
			return nil
		case errors.Is(err, io.EOF):
			return ErrDamaged
		case err != nil:
			return damagedText(err)
		}
		if err := r.take(l); err != nil {
			return err
		}
	}
}

func (r *backupReader) take(l line) error {
	switch {
	case l != (line{Asset: l.Asset}) && l != (line{Item: l.Item}) && l != (line{End: l.End}):
		return ErrDamaged // it is several at once, and one of them would be skipped
	case l.Asset != "" && r.asset == "":
		r.asset, r.sum = l.Asset, Sum{}
		return nil
	case l.Item != nil && r.asset != "":
		r.sum.add(*l.Item)
		r.items = append(r.items, *l.Item)
		if len(r.items) < pageItems {
			return nil
		}
		return r.flush()
	case l.End != nil && l.End.Asset == r.asset && l.End.Count == r.sum.Count &&
		l.End.Digest == r.sum.Digest():
		if err := r.flush(); err != nil {
			return err
		}
		r.end(*l.End)
		r.asset = ""
		return nil
	default:
		return ErrDamaged
	}
}

func (r *backupReader) flush() error {
	err := r.page(r.asset, r.items)
	r.items = r.items[:0]
	return err
}
