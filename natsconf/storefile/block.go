package storefile

// maxRecord bounds a record where the next intact one is looked for after damage: our messages have a few
// KiB.
const maxRecord = 256 << 10

// hole is a part of a block that holds no intact record.
type hole struct{ start, end int }

// block reads the records of one block.
type block struct {
	*decoder

	buf []byte
}

func newBlock(stream string, number uint32, buf []byte) *block {
	return &block{newDecoder(stream, number), buf}
}

// walk calls each, in order, with every intact record and its bytes, and damaged with every hole between
// them.
func (b *block) walk(each func(r record, raw []byte), damaged func(hole)) {
	last := uint64(0)
	for at := 0; at < len(b.buf); {
		r, size := b.at(at, len(b.buf))
		if size > 0 {
			last = max(last, r.Sequence)
			each(r, b.buf[at:at+size])
			at += size
			continue
		}
		next := b.resume(at+1, last)
		damaged(hole{at, next})
		at = next
	}
}

// resume returns where the next intact record begins, or the end.
func (b *block) resume(from int, last uint64) int {
	for at := from; at < len(b.buf); at++ {
		if r, size := b.at(at, maxRecord); size > 0 && (r.deleted || r.Sequence > last) {
			return at
		}
	}
	return len(b.buf)
}

// at returns the intact record of at most limit bytes that begins at an offset, and its size; 0 if there is
// none.
func (b *block) at(offset, limit int) (r record, size int) {
	rest := b.buf[offset:]
	if len(rest) < recordHead {
		return r, 0
	}
	size = recordSize(rest)
	if size == 0 || size > limit || size > len(rest) {
		return r, 0
	}
	r, ok := b.record(rest[:size])
	if !ok {
		return r, 0
	}
	return r, size
}
