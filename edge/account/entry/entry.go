// Package entry reads and writes the kind of entry that accounts, keys, grants and the audit log share in
// JetStream: entries that are written on a condition, and lists of them as the leader has them.
package entry

import (
	"context"
	"fmt"
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

// Decode refuses a record of a build newer than Version, and does not misread it. version is the place of the
// record's version in into. The error is natsconf.ErrNewer, or describes what is wrong with the record.
func Decode(data []byte, into any, version *int) error {
	return natsconf.DecodeRecord(data, into, version, Version)
}

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

// Tries bounds how often a write-once entry is tried while another's, or one's own whose answer was lost, is
// on its way there.
const Tries = 50

// pauseTime lets another publish that is in flight on the subject arrive before the next read.
const pauseTime = 20 * time.Millisecond

// Pause waits between two tries. The error is natsconf.ErrUncertain if ctx ends.
func Pause(ctx context.Context) error {
	select {
	case <-time.After(pauseTime):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", natsconf.ErrUncertain, ctx.Err())
	}
}

// Entry is an entry of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
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
