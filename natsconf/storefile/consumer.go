package storefile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Position is the position of a consumer: everything up to its floor is acknowledged.
type Position struct {
	Stream   uint64 `json:"stream"`   // sequence of the stream
	Consumer uint64 `json:"consumer"` // how often it has delivered a message by then
}

// consumerFile is where the server keeps a consumer's position, without a checksum.
func consumerFile(folder, consumer string) string {
	return filepath.Join(folder, "obs", consumer, "o.dat")
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
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// consumerMagic and consumerVersion begin the file.
const consumerMagic, consumerVersion = 22, 2

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
