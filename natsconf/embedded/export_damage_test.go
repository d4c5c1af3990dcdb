package embedded

import "time"

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

// WitnessSettled returns the last sequence of a stream that is on the disk, as the witness has it.
func WitnessSettled(dataDir, stream string) uint64 {
	w, err := readWitness(dataDir)
	if err != nil || w.mark(stream) == nil {
		return 0
	}
	return w.mark(stream).Settled
}

// SettleWithin sets within what time the server's writes are on the disk.
func (e *Server) SettleWithin(d time.Duration) { e.settling.within = d }

// WriteWitness writes the witness of an empty store.
func (e *Server) WriteWitness() error { return e.writeWitness(initialWitness()) }
