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
