// Package entry reads and writes the kind of entry that accounts, keys, grants and the audit log share in
// JetStream: entries that are written on a condition, and lists of them as the leader has them.
package entry

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Version is carried by stored records, so that a later build can read an older one's. Version 1 knew no
// members, and neither expiry nor names of keys, nor times of signing secrets. A build that knows version 1
// alone refuses a version 2: it would accept keys that have expired.
const Version = 2

// Replace is a message that replaces the one on a subject if that has not changed since it was read; revision
// 0: if there is none.
func Replace(subject string, data []byte, revision uint64) *nats.Msg {
	return &nats.Msg{
		Subject: subject, Data: data,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)}},
	}
}

// Message is Replace for an entry of a bucket.
func Message(bucket, entry string, data []byte, revision uint64) *nats.Msg {
	return Replace(topology.BucketSubject(bucket, entry), data, revision)
}

// Entry is an entry of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
}

// name is what entries' names consist of. Anything else would be a wildcard, or another subject.
var name = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

// Get reads an entry, as the leader has it. Its errors are natsconf.ErrNotFound, also for a name that no
// entry can have, and natsconf.ErrUnavailable. The revision of an entry that was not found is that for Put.
func Get(ctx context.Context, c *natsconf.Conn, bucket, key string) (Entry, error) {
	if !name.MatchString(key) {
		return Entry{}, natsconf.ErrNotFound
	}
	m, err := c.Last(ctx, topology.BucketStream(bucket), topology.BucketSubject(bucket, key))
	switch {
	case err != nil:
		return Entry{}, fmt.Errorf("read from %s: %w", bucket, err)
	case natsconf.IsMarker(m.Header):
		return Entry{Revision: m.Sequence}, natsconf.ErrNotFound
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence}, nil
}

// Put stores an entry that has not changed since it was read; revision 0: that there was none. Its errors are
// those of natsconf.Conn.PublishOne, natsconf.ErrConflict if it has changed.
func Put(ctx context.Context, c *natsconf.Conn, bucket, key string, value []byte, revision uint64) error {
	return c.PublishOne(ctx, topology.BucketStream(bucket), Message(bucket, key, value, revision))
}

// Purge removes an entry, on the condition of Put; revision 0: whatever it is now. Its errors are those of
// Put.
func Purge(ctx context.Context, c *natsconf.Conn, bucket, key string, revision uint64) error {
	m := Message(bucket, key, nil, revision)
	m.Header.Set("KV-Operation", "PURGE")
	if revision == 0 {
		m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	}
	return c.PublishOne(ctx, topology.BucketStream(bucket), m)
}

// List reads the entries of a bucket whose names match, as they are now. A watch would report them as known
// by a server that may be behind the bucket's leader.
func List(ctx context.Context, c *natsconf.Conn, bucket, filter string) ([]Entry, error) {
	msgs, err := c.Newest(ctx, topology.BucketStream(bucket), topology.BucketSubject(bucket, filter))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", bucket, err)
	}
	entries := make([]Entry, 0, len(msgs))
	for _, m := range msgs {
		if natsconf.IsMarker(m.Headers()) {
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", bucket, err)
		}
		entries = append(entries, Entry{
			Key:   strings.TrimPrefix(m.Subject(), topology.BucketSubject(bucket, "")),
			Value: m.Data(), Revision: meta.Sequence.Stream,
		})
	}
	return entries, nil
}

// Stamp formats an instant for a record; empty for a zero one.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
