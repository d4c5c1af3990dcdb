package records

import "testing"

// What a read panics with is its caller's to recover from, as if it had read by itself.
func TestBegunReadPanicsWhereItIsAwaited(t *testing.T) {
	t.Parallel()
	wait := Begin(func() (int, error) { panic("a fault") })
	defer func() {
		if p := recover(); p != "a fault" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = wait()
	t.Error("it returned")
}
