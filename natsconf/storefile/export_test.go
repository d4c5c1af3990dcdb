package storefile

// Records calls each with every intact record of a block, and damaged with every hole between them.
func Records(stream string, number uint32, buf []byte, each func(m Message, raw []byte, stands bool),
	damaged func(from, to int)) {
	newBlock(stream, number, buf).walk(func(r record, raw []byte) {
		each(r.Message, raw, !r.deleted && !r.erased)
	}, func(h hole) { damaged(h.start, h.end) })
}

// ReadOnce is Read without waiting for the end of a batch.
func (t *Tail) ReadOnce(do func(*Message) error) error { return t.readOnce(do) }
