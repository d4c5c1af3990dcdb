package storefile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Position is the position of a consumer: everything up to its floor is acknowledged.
type Position struct {
	Stream   uint64 `json:"stream"`   // sequence of the stream
	Consumer uint64 `json:"consumer"` // how often it has delivered a message by then
}

// positionFile is where the server keeps a consumer's position, without a checksum.
const positionFile = "o.dat"

func consumerFile(folder, consumer string) string {
	return filepath.Join(partFolder(folder, consumer), positionFile)
}

// ConsumerDigest returns a digest of the file with a consumer's position; empty if there is none.
func ConsumerDigest(folder, consumer string) (string, error) {
	b, err := os.ReadFile(consumerFile(folder, consumer))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), nil
}

// consumerMagic and consumerVersion begin the file.
const consumerMagic, consumerVersion = 22, 2

// PositionReadable reports whether the server can read the file with a consumer's position; true if there is
// none. With one that it cannot read the server makes no consumer.
func PositionReadable(folder, consumer string) (bool, error) {
	return everIntact(func() (bool, error) { return positionReadable(consumerFile(folder, consumer)) })
}

func positionReadable(path string) (bool, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own store
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || len(b) < 2 || b[0] != consumerMagic || b[1] != consumerVersion {
		return false, err
	}
	b = b[2:]
	next := func() (n uint64, ok bool) {
		n, size := binary.Uvarint(b)
		b = b[max(size, 0):]
		return n, size > 0
	}
	skip := func(fields uint64) (ok bool) {
		for ok = true; ok && fields > 0; fields-- {
			_, ok = next()
		}
		return ok
	}
	// floor and delivered; then each message that is not acknowledged; then each that was delivered again
	ok := skip(4)
	pending, is := next()
	if ok = ok && is; ok && pending > 0 {
		ok = skip(1) && skip(3*min(pending, uint64(len(b))))
	}
	again, is := next()
	return ok && is && skip(2*min(again, uint64(len(b)))), nil
}

// SetConsumer makes a consumer go on from a position: everything after it is delivered again. If the consumer
// has no folder there is nothing to set: the server begins at the stream's beginning.
func SetConsumer(folder, consumer string, p Position) error {
	path := consumerFile(folder, consumer)
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	b := []byte{consumerMagic, consumerVersion}
	// floor, delivered, none pending, none redelivered
	for _, n := range []uint64{p.Consumer, p.Stream, p.Consumer, p.Stream, 0, 0} {
		b = binary.AppendUvarint(b, n)
	}
	return Replace(path, b)
}
