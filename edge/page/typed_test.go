package page

import (
	"html/template"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTyped(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":           {"sailor_42", "sailor_42"},
		"empty":           {"", ""},
		"markup":          {`<a href="x">&'`, `&lt;a href=&#34;x&#34;&gt;&amp;&#39;`},
		"C0":              {"a\x00\x1f\tb", "a<i>U+0000 U+001F U+0009</i>b"},
		"line ends":       {"a\r\nb", "a<i>U+000D U+000A</i>b"},
		"DEL and C1":      {"\x7f\u0080\u009f", "<i>U+007F U+0080 U+009F</i>"},
		"line separators": {"\u2028\u2029", "<i>U+2028 U+2029</i>"},
		"bidi marks":      {"\u061c\u200e\u200f", "<i>U+061C U+200E U+200F</i>"},
		"bidi embeddings": {
			"\u202a\u202b\u202c\u202d\u202e", "<i>U+202A U+202B U+202C U+202D U+202E</i>",
		},
		"bidi isolates": {"\u2066\u2067\u2068\u2069", "<i>U+2066 U+2067 U+2068 U+2069</i>"},
		"zero width": {
			"a\u200bb\u200cc\u200dd\ufeffe\u2060",
			"a<i>U+200B</i>b<i>U+200C</i>c<i>U+200D</i>d<i>U+FEFF</i>e<i>U+2060</i>",
		},
		"soft hyphen":              {"a\u00adb", "a<i>U+00AD</i>b"},
		"fillers":                  {"\u115f\u3164\uffa0\u034f", "<i>U+115F U+3164 U+FFA0 U+034F</i>"},
		"blank braille":            {"\u2800", "<i>U+2800</i>"},
		"tags":                     {"\U000e0041", "<i>U+E0041</i>"},
		"private use":              {"\ue000", "<i>U+E000</i>"},
		"selector after a letter":  {"a\ufe0f", "a<i>U+FE0F</i>"},
		"joiner at the ends":       {"\u200d👧\u200d", "<i>U+200D</i>👧<i>U+200D</i>"},
		"family":                   {"👩‍👩‍👧", "👩‍👩‍👧"},
		"heart on fire":            {"❤️‍🔥", "❤️‍🔥"},
		"skin tone and profession": {"👩🏽‍🚀", "👩🏽‍🚀"},
		"keycap":                   {"1️⃣", "1️⃣"},
		"flag":                     {"🇩🇪", "🇩🇪"},
		"Arabic":                   {"مرحبا", "مرحبا"},
		"Arabic number sign":       {"\u0600", "\u0600"},
		"accents":                  {"é e\u0301", "é e\u0301"},
		"spaces":                   {" a  b ", " a  b "},
		"invalid":                  {"a\xffb", "a\ufffdb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Typed(tc.in); got != template.HTML("<bdi>"+tc.want+"</bdi>") {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// The answer of somebody's program keeps its lines, and nothing else that is not seen.
func TestTypedLines(t *testing.T) {
	for in, want := range map[string]string{
		"<p>\r\n\tno\n": "&lt;p&gt;\r\n\tno\n", "a\x1b[31m\u202e\nb": "a<i>U+001B</i>[31m<i>U+202E</i>\nb",
		"a\u2028b\vc": "a<i>U+2028</i>b<i>U+000B</i>c",
	} {
		if got := TypedLines(in); got != template.HTML("<bdi>"+want+"</bdi>") {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestRoom(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "sailor_42": 9, "a\u200bb": 2 + signRoom, "\u200b\ufe0f": 2 * signRoom, "e\u0301": 2, "❤️": 2,
	} {
		if got := Room(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

// Text without a break opportunity is marked, so that a table makes way only for such text.
func TestTypedMarksLongPieces(t *testing.T) {
	for in, long := range map[string]bool{
		strings.Repeat("a", 16): false, strings.Repeat("a", 17): true, strings.Repeat("a ", 500): false,
		strings.Repeat("\u05e9", 17): true,
	} {
		if got := strings.HasPrefix(string(Typed(in)), `<bdi class="long">`); got != long {
			t.Errorf("%q: marked as long: %t", in, got)
		}
	}
}

func FuzzTyped(f *testing.F) {
	f.Add("<script>\u202e\x00</bdi>")
	f.Fuzz(func(t *testing.T, s string) {
		got := string(Typed(s))
		inner := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(got, "<bdi>"),
			`<bdi class="long">`), "</bdi>")
		inner = strings.NewReplacer("<i>", "", "</i>", "").Replace(inner)
		if !utf8.ValidString(got) || strings.ContainsAny(inner, "<>\"'") {
			t.Errorf("%q is drawn as %q", s, got)
		}
		for i, r := range []rune(got) {
			if !seen([]rune(got), i) {
				t.Errorf("%q is drawn with U+%04X in it", s, r)
			}
		}
	})
}
