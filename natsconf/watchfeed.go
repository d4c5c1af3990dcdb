package natsconf

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// feed is what a server gives of a bucket.
type feed struct {
	from   jetstream.KeyWatcher
	cancel context.CancelFunc
}

// end ends a feed and reads out what it still holds: its goroutine waits for a reader otherwise, for good. That takes seconds where nobody
// answers that the consumer is deleted, as while the servers elect who places consumers.
func (f *feed) end() {
	f.cancel()
	_ = f.from.Stop()
	late := time.After(feedFor) // the library never closes a feed whose subscription ended before its handler was set
	for {
		select {
		case _, ok := <-f.from.Updates():
			if !ok {
				return
			}
		case <-late:
			return
		}
	}
}

func (f *feed) updates() <-chan jetstream.KeyValueEntry {
	if f == nil {
		return nil
	}
	return f.from.Updates()
}

// mended is an entry that was read from the leader.
type mended struct {
	bucket string
	m      *jetstream.RawStreamMsg
}

func (e *mended) Bucket() string                  { return e.bucket }
func (e *mended) Key() string                     { return strings.TrimPrefix(e.m.Subject, BucketSubject(e.bucket, "")) }
func (e *mended) Value() []byte                   { return e.m.Data }
func (e *mended) Revision() uint64                { return e.m.Sequence }
func (e *mended) Created() time.Time              { return e.m.Time }
func (e *mended) Delta() uint64                   { return 0 }
func (e *mended) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }
