package embedded

// WitnessHas reports whether the witness of a data directory has these sequences for these streams.
func WitnessHas(dataDir string, last map[string]uint64) bool {
	w, err := readWitness(dataDir)
	for stream, n := range last {
		if err != nil || n > 0 && (w.mark(stream) == nil || w.mark(stream).Last < n) {
			return false
		}
	}
	return true
}

// WitnessFloor returns up to where a consumer has acknowledged, as the witness of a data directory has it.
func WitnessFloor(dataDir, stream, consumer string) uint64 {
	w, err := readWitness(dataDir)
	if err != nil || w.mark(stream) == nil {
		return 0
	}
	for _, c := range w.mark(stream).Consumers {
		if c.Name == consumer {
			return c.Stream
		}
	}
	return 0
}

// WriteWitness writes the witness of an empty store.
func (e *Server) WriteWitness() error { return e.writeWitness(initialWitness()) }
