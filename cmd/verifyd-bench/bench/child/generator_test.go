package child

import (
	"testing"
	"time"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/natsconf/natstest/prove"
)

// The generator must cost less than what it measures, or it measures itself: even net/http's server with an
// empty handler is slower.
func TestGeneratorIsCheaperThanAServer(t *testing.T) {
	prove.Only(t, "weights", "it measures")
	prepared, address, err := newPreparedServer(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prepared.close)
	bare, bareAddress, err := newBareHandler(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.close)
	rate := func(address string) float64 {
		l := load.NewInits(16, address, load.InitRequest(address, "", "https://a.example/"))
		defer l.Close()
		got := load.Closed(t.Context(), 200*time.Millisecond, l.Steps)
		if got.Errors > 0 {
			t.Fatal(got.FirstErr)
		}
		return got.Rate()
	}
	for try := 1; ; try++ { // others may use the machine just now
		generator, handler := rate(address), rate(bareAddress)
		t.Logf("generator %.0f/s, bare handler %.0f/s", generator, handler)
		if generator > 1.3*handler {
			return
		}
		if try == 5 {
			t.Fatal("the generator is not clearly faster than the cheapest server that it measures")
		}
	}
}
