package laws

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Buckets are read and written through natsconf.Conn, whose writes are not acknowledged, and whose reads
// fail, once the disk has failed. A client's own handle to a bucket knows nothing of the disk.
func TestBucketsAreOfTheConnection(t *testing.T) {
	t.Parallel()
	err := eachFile(".go", func(name, path string) error {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "natsconf/") {
			return nil
		}
		source, err := os.ReadFile(path)
		if bytes.Contains(source, []byte(".KeyValue(")) {
			t.Errorf("%s opens a bucket: use natsconf.Conn, or package edge/account/entry", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
