package naming_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"verifyd/edge/account/input"
	"verifyd/edge/account/naming"
	"verifyd/edge/network/netsettings"
)

// A name is stored in one form, and invisible characters are refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"Harbor Guild": "Harbor Guild", "  Harbor \t Guild ": "", "  Harbor   Guild ": "Harbor Guild",
		"Harbor\u00a0Guild": "Harbor Guild", "Ｈａｒｂｏｒ": "Harbor", "Cafe\u0301": "Café", "ﬁne": "fine",
		"Heart \u2764\ufe0f": "Heart \u2764", "東京クラブ": "東京クラブ", "نادي": "نادي", "क्लब": "क्लब",
		"": "", " ": "", "a\u0000b": "", "a\u202eb": "", "a\u200bb": "", "a\u2066b": "", "a\ufeffb": "",
		"a\u00adb": "", "a\u3164b": "", "a\uffa0b": "", "a\u034fb": "", "a\u2800b": "", "\u2800": "",
		"\u0301abc": "", "a\u0323\u0324\u0325\u032d\u0330b": "", "a\xffb": "", "a\U000e0041b": "",
		strings.Repeat("x", input.NameBytes):   strings.Repeat("x", input.NameBytes),
		strings.Repeat("x", input.NameBytes+1): "", strings.Repeat("ﷺ", 12): "",
	} {
		got, err := naming.Check(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%+q is stored as %+q, %v; want %+q", given, got, err, want)
		}
		if wrong, ok := errors.AsType[*input.Error](err); err != nil && (!ok || wrong.Field != "name") {
			t.Errorf("%+q: %v", given, err)
		}
		if again, err := naming.Check(got); want != "" && (again != got || err != nil) {
			t.Errorf("%+q is no form to store: %+q, %v", got, again, err)
		}
	}
}

// Known pairs of UTS 39's table, and what people do to a name to get it anyway.
func TestAlike(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{
			"Discord", "DISCORD", "dlscord", "DlSCORD", "D1sc0rd", "Dıscord", "Dіѕсоrd", "Ⅾiscord", "𝔇𝔦𝔰𝔠𝔬𝔯𝔡",
			"D i s c o r d", "Dis-cord", "Discord.", "Ðiscord", "Díscørd", "Dis\u2010cord", "Ⓓⓘⓢⓒⓞⓡⓓ",
		},
		{"Steam", "Ѕteаm", "Stearn", "STEAM"},
		{"Google", "G00gle", "Gооgle", "Goog1e", "GoogIe"},
		{"paypal", "раураl", "pаypal", "PAYPAL"}, {"scope", "ѕсоре"}, {"Harbor Guild", "Harb0r " +
			"Gui1d", "HarborGuild"},
		{"Καλα", "ΚΑΛΑ"}, {"ӏ", "l", "1", "|"},
	} {
		for _, name := range same[1:] {
			if a, b := naming.LookOf(name), naming.LookOf(same[0]); !a.Like(b) {
				t.Errorf("%q (%q) is told from %q (%q)", name, a, same[0], b)
			}
		}
	}
	for _, pair := range [][2]string{
		{"Harbor Guild", "Harbour Guild"}, {"カラス", "ガラス"}, {"Pier 1", "Pier 2"}, {"C", "C++"}, {"!!!", "???"},
		{"Discord", "Discard"}, {"東京", "京都"},
	} {
		if naming.LookOf(pair[0]).Like(naming.LookOf(pair[1])) {
			t.Errorf("%q is taken for %q", pair[0], pair[1])
		}
	}
}

// No account has the name of an identity network, a platform or the service, nor one that only adds generic
// words.
func TestReserved(t *testing.T) {
	t.Parallel()
	reserved := []string{
		"verifyd", "Admin", "Support", "Official", "Discord Support", "The Official Discord " +
			"Team", "discord.com",
		"Friends of Discord", "Harbor Discord", "Steam Engine Club", "Sign in with Discord", "Discord™",
		"Google LLC", "Dis cord Club", "the D1sc0rd-club",
		"Friends of D.i.s.c.o.r.d", "DiscordClub", "SteamCommunity", "Discord2024 Club",
		"Fans of D|scord", "D i s c o r d Club", "Ｇｏｏｇｌｅ Club",
		"Steаm", "STEAM Admin", "Verified by Discord", "Discord 2", "VerifydAdmin", "\u0392luesky", "Ｄｉｓｃｏｒｄ",
	}
	_, err := netsettings.ParseFile([]byte("- kind: nothing")) // says which networks are known by name
	_, known, _ := strings.Cut(err.Error(), "one of ")
	known, _, _ = strings.Cut(known, "\n")
	kinds := regexp.MustCompile(`[a-z0-9]{3,}`).FindAllString(known, -1)
	if !slices.Contains(kinds, netsettings.KindVATSIM) {
		t.Fatalf("networks known by name: %q of %v", kinds, err)
	}
	reserved = append(reserved, kinds...)
	for _, name := range reserved {
		err := naming.Judge(naming.Clean(name))
		if _, ok := errors.AsType[*input.Error](err); !ok || !naming.IsReserved(naming.Clean(name)) {
			t.Errorf("%q is free: %v", name, err)
		}
	}
	for _, name := range []string{"Harbor Guild ✔", "Harbor Guild (Verified)", "Verifıed Harbor", "✅"} {
		if err := naming.Judge(naming.Clean(name)); err == nil || !strings.Contains(err.Error(), "verified") {
			t.Errorf("%q says that it is verified: %v", name, err)
		}
	}
	for _, name := range []string{
		"Harbor Guild", "Unverified", "Team", "The Team", "Metal", "Modern", "Discordia", "Acme Support",
		"Harbor Guild (EU)", "Tom’s Place – 24/7", "C++ & C#", "ガラス・クラブ",
		"Lol", "7", "!!!", "Applebee", "東京クラブ", "Москва", "Tokyo 東京 クラブ", "서울 " +
			"Club", "Ελλάδα 24",
	} {
		if err := naming.Judge(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
}

// Letters of scripts that are not written together are not in one name (UTS 39 §5.2).
func TestScriptsAreNotMixed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Harbоr Guild", "Αcme Works", "Club Москва", "漢字 Ѕite", "ひらがな 한글", "Аcme"} {
		if err := naming.Judge(name); err == nil || !strings.Contains(err.Error(), "letters of") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("Discord")
	f.Add("\u0345İ\u3099")
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := naming.Check(name)
		if err != nil {
			return
		}
		if again, err := naming.Check(clean); again != clean || err != nil {
			t.Errorf("%+q is stored as %+q, and that as %+q, %v", name, clean, again, err)
		}
		_ = naming.Judge(clean)
		if look := naming.LookOf(clean); !look.Like(naming.LookOf(strings.ToUpper(clean))) && isASCII(clean) {
			t.Errorf("%q looks like another name in capitals", clean)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// The names of the service's own networks, and its host, are reserved as those are that everybody knows.
func TestNamesOfTheServiceAreReserved(t *testing.T) {
	t.Parallel()
	own := []string{"harbor-sso", "Harbor Club Login", "verify.example.com"}
	for name, want := range map[string]bool{
		"Harbor-SSO": true, "HarborSS0": true, "Harbor SSO Team": true, "harb0r club login": true,
		"verify example com": true, "Harbor Club Login Team": true,
		"Harbor Guild": false, "Harbor Club": false, "example.com": false,
	} {
		if got := naming.IsReserved(naming.Clean(name), own...); got != want {
			t.Errorf("%q is reserved: %t", name, got)
		}
	}
}

// Names have no letters that only look like others, and no symbols (UTS 39 §3.1); what people write in
// everyday scripts is theirs.
func TestCharactersOfNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"\u1d00cm\u1d07", "Harbor \u2764", "Harbor \U0001f600", "Guild \u2122\u00ae", "\u2c60arbor",
		"Harbor\u2192", "\ua731team", "\u0261uild",
	} {
		if err := naming.Judge(naming.Clean(name)); err == nil {
			t.Errorf("%q is free", name)
		}
	}
	for _, name := range []string{
		"Žluťoučký kůň", "Ελλάδα", "Київ", "नमस्ते", "ไทย", "עברית", "العربية", "한국어", "漢字",
		"தமிழ்", "Đà Nẵng", "Übergrößen",
	} {
		if err := naming.Judge(naming.Clean(name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
