package flow

import (
	"net/url"
	"slices"
	"testing"
)

// A code has one name, however it is spelled on the way to a network that would still accept it; other codes
// have others, and so has what is no code.
func TestNamesOfCodes(t *testing.T) {
	const code = "4/0AX4XfWh-tQ_z9k7Lw5mVbJc2"
	redeems := func(code string) string { return nameOf(cut(spelling(code))) }
	spent := []string{nameOf(cut(spelling(code))), nameOf(spelling(code))}
	for _, same := range []string{
		code, "4/0ax4xfwh-tq_z9k7lw5mvbjc2", "4/0AX4XfWh+tQ/z9k7Lw5mVbJc2", code + "=", " " + code + "\n",
		code + "==&more",              // what follows the padding
		"4/0AX4XfWh-tQ_z9k7Lw5mVbJc3", // only bits that no byte needs
		code + "A",                    // a character that is too many
	} {
		if !slices.Contains(spent, redeems(same)) {
			t.Errorf("%q can be redeemed once %q is spent", same, code)
		}
	}
	for _, other := range []string{
		"4/0AX4XfWh-tQ_z9k7Lw5mVbJ", "4/0AX4XfWh-tQ_z9k7Lw5mVbKc2", "1", "2", "short", "shorT1",
	} {
		name := redeems(other)
		if slices.Contains(spent, name) || name == Hash(other) || len(name) > 64 {
			t.Errorf("%q has the name of another code, or of an attempt", other)
		}
	}
	if redeems("1") == redeems("2") {
		t.Error("short codes that differ at the end have one name")
	}
	for what, tc := range map[string]struct {
		q    url.Values
		want int
	}{
		"nothing":             {nil, 0},
		"an error":            {url.Values{"error": {"access_denied"}, "state": {"x"}}, 0},
		"an empty code":       {url.Values{"code": {"", "-"}}, 0},
		"two codes":           {url.Values{"code": {"a", "b"}}, 2},
		"an OpenID assertion": {url.Values{"openid.response_nonce": {"2026-01-02T03:04:05Zx"}}, 1},
	} {
		if got := handedOver(tc.q); len(got) != tc.want {
			t.Errorf("%s: %q, want %d names", what, got, tc.want)
		}
	}
}
