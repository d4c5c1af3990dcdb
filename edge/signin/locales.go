package signin

import (
	"embed"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
)

//go:embed texts/*.yaml
var textFiles embed.FS

// mainLocale is the language of whoever asks for none that there is, and whose text stands in for one that a
// language lacks.
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

// word returns a text that stands by itself. A key that does not exist shows as itself; a test finds those.
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
