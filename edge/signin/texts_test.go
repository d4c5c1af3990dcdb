package signin

import (
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/feature/plural"

	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/page/drawn"
)

// everyPage returns a complete view of each page and notice.
func everyPage(words *locale) []view {
	kinds := []kind{
		pageAsk, pageCard, pageVerified, pageDeclined, pageRefused, pageCanceled, pageExpired, pageUntestable,
		pageClosed, pageElsewhere, pageCookies, pageOften, pageConfirm, pageSignedIn, pageUnconfirmed,
		pageLanguages, pageUnknown, pageNowhere, pageLost, pageForeign, pageMalformed, pageUnavailable,
	}
	for _, k := range refusedPages {
		kinds = append(kinds, k)
	}
	var views []view
	for _, k := range kinds {
		v := view{
			look: look{
				Kind: k.name, Tone: k.tone, Test: true, AgainText: "note.again", Left: "ask.left.minutes",
				Back: "/", Lead: "ask.lead.many", Gives: true, Languages: "?lang=",
				Caution: k == pageElsewhere || k == pageSignedIn, Nowhere: k == pageNowhere, words: words,
			},
			Again: "/", Code: "K7M2QX", Choices: []choice{{"ar", "x", "?lang=ar", true}},
			Facts: []fact{{"ask.account", "y", "x"}, {"ask.where", "", "x"}, {"ask.group", "", "x"}},
			Buttons: []button{
				{Network: "a", Name: "A"}, {Network: "b", Name: "B", Away: true},
			},
			values: map[string]string{
				"asker": "x", "Asker": "X", "network": "N", "app": "P", "until": "14:03", "platform": "D",
			},
		}
		if k != pageAsk {
			views = append(views, v)
			continue
		}
		v.Stop, v.InApp = true, &inApp{App: "P", Open: "/"}
		for _, n := range append(noted(), "note.begun", "note.takeover", "note.proven") {
			v.Note = n
			views = append(views, v)
		}
		v.Left, v.Buttons, v.InApp = "ask.left.last", v.Buttons[:1], &inApp{}
		for _, lead := range []string{"ask.lead.one", "ask.lead.own", "ask.lead.both", "ask.lead.both.many"} {
			v.Lead, v.Buttons[0].Second = lead, lead == "ask.lead.both"
			views = append(views, v)
		}
	}
	return views
}

func noted() (keys []string) {
	for n := range notices {
		keys = append(keys, "note."+string(n))
	}
	return keys
}

// Every page and notice is rendered in every language, which fails on a missing value, with every number that
// may occur.
func TestPagesInEveryLanguage(t *testing.T) {
	p := pages{material: must(loadMaterial())(t), drawn: drawn.New[drawing](maxKept)}
	ts := p.locales
	for _, words := range ts.all {
		for _, v := range everyPage(words) {
			for v.count = range 12 {
				if _, err := p.paint(v); err != nil {
					t.Errorf("%s: %v", words.code, err)
				}
			}
		}
	}
}

// Every language has the same texts with the same values and the same stress, in every plural form that it
// needs and in no other; and every text is used.
func TestTextsAreWholeAndUsed(t *testing.T) {
	english, used := asWritten(t, mainLocale), uses(t)
	for key := range english {
		if !strings.Contains(used, `"`+key+`"`) {
			t.Errorf("text %q is used by nothing", key)
		}
	}
	for _, words := range must(loadLocales())(t).all {
		own := asWritten(t, words.code)
		for key, m := range english {
			if own[key] == nil {
				t.Errorf("%s: text %q is missing", words.code, key)
			} else if got, want := values(own[key]), values(m); got != want {
				t.Errorf("%s: text %q has the values %s, in English it has %s", words.code, key, got, want)
			}
		}
		for key, m := range own {
			if english[key] == nil {
				t.Errorf("%s: text %q is not there in English", words.code, key)
			} else if got, want := formsOf(m), neededForms(words, english[key]); !slices.Equal(got, want) {
				t.Errorf("%s: text %q has the plural forms %v, the language needs %v", words.code, key, got,
					want)
			}
		}
		script, _ := words.tag.Script()
		rightToLeft := slices.Contains(strings.Fields("Adlm Arab Hebr Nkoo Rohg Syrc Thaa"), script.String())
		if words.dir != map[bool]string{true: "rtl", false: "ltr"}[rightToLeft] {
			t.Errorf("%s is written %s", words.code, words.dir)
		}
	}
}

// asWritten reads a language's file without the fallbacks for missing texts.
func asWritten(t *testing.T, code string) texts {
	t.Helper()
	var ts texts
	if err := yaml.Unmarshal(must(textFiles.ReadFile("texts/"+code+".yaml"))(t), &ts); err != nil {
		t.Fatal(err)
	}
	return ts
}

// values lists the values of a message, with its stresses. A plural form may do without the count: "one
// minute".
func values(m message) string {
	all := map[string]bool{}
	for _, w := range m {
		if w == nil {
			continue
		}
		stress := 0
		for _, p := range w {
			switch p.kind {
			case partValue:
				all[p.text] = true
			case partStress:
				stress++
			}
		}
		all[fmt.Sprint(stress/2, " stressed")] = true
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

func formsOf(m message) (forms []plural.Form) {
	for f, w := range m {
		if w != nil {
			forms = append(forms, plural.Form(f))
		}
	}
	return forms
}

// neededForms are the plural forms of the integers that occur: minutes of a session.
func neededForms(words *locale, english message) []plural.Form {
	if len(english) == 1 {
		return []plural.Form{plural.Other}
	}
	forms := []plural.Form{plural.Other} // also of fractions, which do not occur here
	for n := range 61 {
		if f := plural.Cardinal.MatchPlural(words.tag, n, 0, 0, 0, 0); n > 0 && !slices.Contains(forms, f) {
			forms = append(forms, f)
		}
	}
	slices.Sort(forms)
	return forms
}

// uses returns the package's code and templates, and the keys that are put together there.
func uses(t *testing.T) string {
	t.Helper()
	code := must(filepath.Glob("*.go"))(t)
	pages := must(filepath.Glob("web/*.html"))(t)
	if len(pages) == 0 {
		t.Fatal("no templates")
	}
	var b strings.Builder
	for _, file := range slices.Concat(code, pages) {
		if !strings.HasSuffix(file, "_test.go") {
			b.Write(must(os.ReadFile(file))(t))
		}
	}
	for _, v := range everyPage(nil) {
		b.WriteString(` "` + v.Kind + `.heading" "` + v.Kind + `.lead" "` + v.Kind + `.next"`)
	}
	b.WriteString(` "` + pageElsewhere.name + `.caution" "` + pageSignedIn.name + `.caution" "` + strings.Join(noted(), `" "`) + `"`)
	return b.String()
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestMessages(t *testing.T) {
	values := map[string]template.HTML{"a": page.Typed("<x>"), "b": page.Typed("y")}
	for in, want := range map[string]string{
		"plain & simple":  "plain &amp; simple",
		"{a} and {b}":     "<bdi>&lt;x&gt;</bdi> and <bdi>y</bdi>",
		"not *yours*, no": "not <strong>yours</strong>, no",
		"*{b}*":           "<strong><bdi>y</bdi></strong>",
	} {
		m, err := parseWording(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.html(values); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "{", "}", "{}", "a {b", "b} c", "*alone", "a * b * c *"} {
		if m, err := parseWording(bad); err == nil {
			t.Errorf("%q is read as %v", bad, m)
		}
	}
	if m, err := parseWording("{c}"); err != nil {
		t.Error(err)
	} else if got, err := m.html(values); err == nil {
		t.Errorf("a missing value is drawn as %q", got)
	}
	for _, bad := range []string{
		"k: {one: x}", "k: {other: x, several: y}", "k: {other: '{'}", "k: [x]", "k: ''",
	} {
		var ts texts
		if err := yaml.Unmarshal([]byte(bad), &ts); err == nil {
			t.Errorf("%s is read as %v", bad, ts)
		}
	}
}

// The forms of numbers, in the languages whose rules are furthest from English ones.
func TestPlurals(t *testing.T) {
	ts := must(loadLocales())(t)
	for code, want := range map[string][]int{ // numbers of one wording each
		"en": {1, 2}, "pl": {1, 2, 5}, "ar": {1, 2, 3}, "ja": {1}, "ru": {1, 2, 5}, "uk": {1, 2, 5},
	} {
		words, seen := ts.find(code), map[string]bool{}
		for _, n := range want {
			w := words.texts["ask.left.minutes"].of(words.tag, n)
			seen[fmt.Sprint(w)] = true
		}
		if len(seen) != len(want) {
			t.Errorf("%s: %d wordings for %v", code, len(seen), want)
		}
	}
	for code, alike := range map[string]map[int]int{
		"pl": {2: 4, 5: 10}, "ru": {1: 21, 2: 24, 5: 11}, "uk": {1: 31, 2: 33, 5: 12},
	} {
		words := ts.find(code)
		m := words.texts["ask.left.minutes"]
		for same, n := range alike {
			if fmt.Sprint(m.of(words.tag, same)) != fmt.Sprint(m.of(words.tag, n)) {
				t.Errorf("%s tells %d and %d apart", code, same, n)
			}
		}
	}
}

// Failures that waiting fixes, that a wrong clock causes, and that only another try may fix have notices of
// their own, each with its text.
func TestNoticesOfTrouble(t *testing.T) {
	for class, want := range map[string]notice{
		network.ClassTimeout: noteUnreachable, network.ClassDNS: noteUnreachable,
		network.ClassEarly: noteClock, network.ClassExpired: noteClock,
		network.ClassSignature: noteUnfinished, network.ClassRefused: noteUnfinished,
		"another": noteUnfinished,
	} {
		if got := noteFor(class); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
		if _, known := notices[want]; !known {
			t.Errorf("%s is not a notice that an address may choose", want)
		}
	}
}
