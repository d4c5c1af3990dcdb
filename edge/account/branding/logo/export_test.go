package logo

import (
	"image"
	"io"
	"slices"
	"testing"
)

// OnDecode has f called before each picture is decoded, until the test ends.
func OnDecode(tb testing.TB, f func()) {
	tb.Helper()
	before := slices.Clone(formats)
	tb.Cleanup(func() { formats = before })
	for i, was := range before {
		formats[i].decode = func(r io.Reader) (image.Image, error) {
			f()
			return was.decode(r)
		}
	}
}
