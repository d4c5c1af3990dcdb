package request

import "testing"

// Misspelt names are found, and others are not.
func TestNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, known string
		want        bool
	}{
		{"bindng", "binding", true}, {"bidning", "binding", true}, {"Binding", "binding", true},
		{"bindings", "binding", true}, {"blinkin", "binding", false}, {"bonding_", "binding", false},
		{"guildId", "guild_id", true}, {"guild", "guild_id", false}, {"build_id", "guild_id", true},
		{"locals", "locale", true}, {"local", "locale", true}, {"scale", "locale", false},
		{"user_id", "guild_id", false}, {"platform_id", "platform", false}, {"plaftorm", "platform", true},
		{"platform_usr_id", "platform_user_id", true}, {"callback", "callback_url", false},
		{"callback-url", "callback_url", true}, {"", "code", false}, {"é", "code", false},
		{"cod", "code", true},
	} {
		if near(c.name, c.known) != c.want {
			t.Errorf("%q is near to %q: %t", c.name, c.known, !c.want)
		}
	}
}
