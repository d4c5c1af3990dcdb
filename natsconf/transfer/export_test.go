package transfer

// ReadEntries reads the entries of a frame, for tests of what is no frame.
func ReadEntries(b []byte) error {
	var e entryReader
	return e.take(b)
}
