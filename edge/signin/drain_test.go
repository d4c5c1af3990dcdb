package signin

import (
	"testing"

	"verifyd/edge/web"
)

// A user who is returning from a provider when the service stops is still answered: a stopping edge waits
// longer than the longest return.
func TestAReturnFitsIntoTheDrain(t *testing.T) {
	if answerWithin >= web.DefaultDrainTimeout {
		t.Errorf("a return may take %s, a stopping edge waits %s", answerWithin, web.DefaultDrainTimeout)
	}
}
