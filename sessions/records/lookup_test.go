package records

import "testing"

// A panic of a read reaches its caller, as if it had read by itself.
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
