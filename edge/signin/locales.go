package signin

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"

	"verifyd/edge/page"
)

//go:embed texts/*.yaml
var textFiles embed.FS

// mainLocale is the language if no other fits, and the source of texts that a language lacks.
const mainLocale = "en"

// maxAcceptBytes bounds the Accept-Language header that is read: those of browsers have some dozens of
// bytes.
const maxAcceptBytes = 1000

// locale is one of the pages' languages.
type locale struct {
	tag   language.Tag
	code  string // as in an address and in HTML: en, zh-Hans
	name  string // what it calls itself
	dir   string // ltr or rtl
	texts texts
}

// word returns a single text. A missing key is shown as itself; a test finds those.
func (t *locale) word(key string) string {
	s, err := t.texts[key].plain()
	if err != nil {
		return key
	}
	return s
}

// locales are all languages, the main one first and the others by their codes.
type locales struct {
	all     []*locale
	matcher language.Matcher
}

// loadLocales reads every file of texts. Errors name the file and what is wrong.
func loadLocales() (locales, error) {
	files, err := textFiles.ReadDir("texts")
	if err != nil {
		return locales{}, fmt.Errorf("read texts: %w", err)
	}
	var ts locales
	for _, f := range files {
		t, err := loadLocale(path.Join("texts", f.Name()))
		if err != nil {
			return locales{}, err
		}
		ts.all = append(ts.all, t)
	}
	main := ts.find(mainLocale)
	if main == nil {
		return locales{}, fmt.Errorf("read texts: there is no %s.yaml", mainLocale)
	}
	slices.SortFunc(ts.all, func(a, b *locale) int {
		if a == main || b == main {
			return map[bool]int{true: -1, false: 1}[a == main]
		}
		return strings.Compare(a.code, b.code)
	})
	tags := make([]language.Tag, len(ts.all))
	for i, t := range ts.all {
		tags[i] = t.tag
		for key, m := range main.texts {
			if _, ok := t.texts[key]; !ok {
				t.texts[key] = m
			}
		}
	}
	ts.matcher = language.NewMatcher(tags)
	return ts, nil
}

func loadLocale(file string) (*locale, error) {
	data, err := textFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	t := &locale{}
	if err := yaml.Unmarshal(data, &t.texts); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	t.code, t.name, t.dir = t.word("lang"), t.word("language.name"), t.word("dir")
	if t.tag, err = language.Parse(t.code); err != nil || path.Base(file) != t.code+".yaml" {
		return nil, fmt.Errorf("read %s: lang is %q; it must be the language's tag and the file's name", file,
			t.code)
	}
	return t, nil
}

// choice is one of the languages in the list of them.
type choice struct {
	Code, Name string
	Address    string // of the page in the language
	Current    bool
}

// choices are the languages, each with the address of the page in it, which begins as address does.
func (ts locales) choices(current *locale, address string) (all []choice) {
	for _, t := range ts.all {
		all = append(all, choice{t.code, t.name, address + "lang=" + t.code, t == current})
	}
	return all
}

// chosenLanguage is the code of the language that an address asks for. The list of languages has that of the
// page that led to it, in a parameter of its own.
func chosenLanguage(q url.Values) string {
	return cmp.Or(page.Single(q, "lang"), page.Single(q, "from"))
}

// find returns the language of a code that was chosen on a page, or nil.
func (ts locales) find(code string) *locale {
	for _, t := range ts.all {
		if t.code == code {
			return t
		}
	}
	return nil
}

// match returns the language that suits a browser best.
func (ts locales) match(r *http.Request) *locale {
	accept := strings.Join(r.Header.Values("Accept-Language"), ",")
	if len(accept) > maxAcceptBytes {
		return ts.all[0]
	}
	wanted, _, err := language.ParseAcceptLanguage(accept)
	if err != nil {
		return ts.all[0]
	}
	_, i, confidence := ts.matcher.Match(wanted...)
	if confidence == language.No {
		return ts.all[0]
	}
	return ts.all[i]
}

// suiting returns the language that a session's locale asks for, or nil if there is none.
func (ts locales) suiting(wanted string) *locale {
	tag, _ := language.Parse(wanted) // what it does not know of a tag it leaves out
	_, i, confidence := ts.matcher.Match(tag)
	if wanted == "" || confidence == language.No {
		return nil
	}
	return ts.all[i]
}

// texts are the messages of one language, by key.
type texts map[string]message

// message is one text, with a wording for each plural form where it counts something: then it counts the
// value "count". Its index is the form; one that counts nothing has plural.Other alone.
type message []wording

// pluralForms are CLDR's names of the plural forms.
var pluralForms = map[string]plural.Form{
	"zero": plural.Zero, "one": plural.One, "two": plural.Two, "few": plural.Few, "many": plural.Many,
	"other": plural.Other,
}

// UnmarshalYAML reads a text, or a mapping of plural forms to texts.
func (m *message) UnmarshalYAML(node *yaml.Node) error {
	forms := map[string]string{}
	if node.Kind == yaml.ScalarNode {
		forms["other"] = node.Value
	} else if err := node.Decode(&forms); err != nil {
		return err
	}
	*m = make(message, 1)
	if len(forms) > 1 {
		*m = make(message, len(pluralForms))
	}
	for name, text := range forms {
		form, ok := pluralForms[name]
		if !ok {
			return fmt.Errorf("line %d: %q is no plural form; there are zero, one, two, few, many and other",
				node.Line, name)
		}
		w, err := parseWording(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("line %d: %w", node.Line, err)
		}
		if int(form) < len(*m) {
			(*m)[form] = w
		}
	}
	if (*m)[plural.Other] == nil {
		return fmt.Errorf("line %d: the plural form other is missing, which every language has", node.Line)
	}
	return nil
}

// of returns the wording for a count in a language.
func (m message) of(tag language.Tag, count int) wording {
	if len(m) == 1 {
		return m[plural.Other]
	}
	if w := m[plural.Cardinal.MatchPlural(tag, count, 0, 0, 0, 0)]; w != nil {
		return w
	}
	return m[plural.Other]
}

// wording is a text with places for values, {name}, and stress, *so*.
type wording []part

type part struct {
	kind partKind
	text string // the literal, or the value's name
	html string // the literal, escaped
}

type partKind int

const (
	partLiteral partKind = iota
	partValue
	partStress // begins or ends it
)

func parseWording(s string) (wording, error) {
	if s == "" {
		return nil, errors.New("an empty text")
	}
	var m wording
	stress := 0
	for s != "" {
		at := strings.IndexAny(s, "{}*")
		if at != 0 {
			if at < 0 {
				at = len(s)
			}
			m, s = append(m, part{partLiteral, s[:at], template.HTMLEscapeString(s[:at])}), s[at:]
			continue
		}
		if s[0] == '*' {
			stress++
			m, s = append(m, part{kind: partStress}), s[1:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 2 {
			return nil, errors.New("a brace that is not part of a {name}")
		}
		m, s = append(m, part{kind: partValue, text: s[1:end]}), s[end+1:]
	}
	if stress%2 != 0 {
		return nil, errors.New("a * without its partner")
	}
	return m, nil
}

// html draws the wording. A value that is missing is an error: a sentence with a hole misleads.
func (m wording) html(values map[string]template.HTML) (template.HTML, error) {
	if len(m) == 1 && m[0].kind == partLiteral {
		return template.HTML(m[0].html), nil //nolint:gosec // it is escaped
	}
	var b strings.Builder
	stress := false
	for _, p := range m {
		switch p.kind {
		case partLiteral:
			b.WriteString(p.html)
		case partStress:
			if stress = !stress; stress {
				b.WriteString("<strong>")
			} else {
				b.WriteString("</strong>")
			}
		case partValue:
			v, ok := values[p.text]
			if !ok {
				return "", fmt.Errorf("no value for {%s}", p.text)
			}
			b.WriteString(string(v))
		}
	}
	return template.HTML(b.String()), nil //nolint:gosec // every piece is escaped above
}

// plain returns a message that has neither values, stress nor plurals, for a page's title and for link
// previews.
func (m message) plain() (string, error) {
	if len(m) != 1 || len(m[plural.Other]) != 1 || m[plural.Other][0].kind != partLiteral {
		return "", errors.New("a title holds neither values, stress nor plural forms")
	}
	return m[plural.Other][0].text, nil
}
