package network_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestAttemptsAreThreeSecretsOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		a := network.NewAttempt()
		for _, s := range []string{a.State, a.Nonce, a.Verifier} {
			if b, err := base64.RawURLEncoding.DecodeString(s); err != nil || len(b) != 32 || seen[s] {
				t.Fatalf("secret of %d bytes, seen before: %v, %v", len(b), seen[s], err)
			}
			seen[s] = true
		}
	}
}

func TestStateIs(t *testing.T) {
	a := network.NewAttempt()
	for state, want := range map[string]bool{
		a.State: true, "": false, a.Nonce: false, a.State + "A": false, a.State[1:]: false,
	} {
		if a.StateIs(state) != want {
			t.Errorf("StateIs = %v, want %v", !want, want)
		}
	}
	if (network.Attempt{}).StateIs("") {
		t.Error("an empty attempt owns the empty state")
	}
}

func TestAttemptTravelsInACookieAndNotInALog(t *testing.T) {
	a := network.NewAttempt()
	b, err := json.Marshal(a)
	var back network.Attempt
	if err != nil || json.Unmarshal(b, &back) != nil || back != a {
		t.Fatalf("the attempt did not survive JSON: %v", err)
	}
	r := network.Return{Code: plantedCode, State: a.State}
	set := netsettings.Settings{ID: "x", ClientSecret: plantedSecret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(verb+verb+verb, a, r, set)
		for _, secret := range []string{a.State, a.Nonce, a.Verifier, plantedCode, plantedSecret} {
			if strings.Contains(text, secret) {
				t.Errorf("%s prints a secret: %s", verb, text)
			}
		}
	}
}
