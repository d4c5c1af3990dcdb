package embedded_test

import (
	"sync"
	"testing"
)

// At the end of a recovery the witness is written while the running server's goroutine may write it, too.
func TestWitnessIsWrittenByOneAtATime(t *testing.T) {
	t.Parallel()
	e := open(t, t.TempDir())
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range 50 {
				if err := e.WriteWitness(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}
