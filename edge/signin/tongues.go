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

// mainTongue is the language of whoever asks for none that there is, and whose text stands in for one that a language lacks.
const mainTongue = "en"

// acceptMostBytes bounds the Accept-Language header that is read: those of browsers have some dozens of bytes.
const acceptMostBytes = 1000

// tongue is one of the pages' languages.
type tongue struct {
	tag   language.Tag
	code  string // as in an address and in HTML: en, zh-Hans
	name  string // what it calls itself
	dir   string // ltr or rtl
	texts texts
}

// word gives a text that stands by itself. A key that does not exist shows as itself; a test finds those.
func (t *tongue) word(key string) string {
	s, err := t.texts[key].plain()
	if err != nil {
		return key
	}
	return s
}

// tongues are all languages, the main one first and the others by their codes.
type tongues struct {
	all     []*tongue
	matcher language.Matcher
}

// loadTongues reads every file of texts. Errors name the file and what is wrong.
func loadTongues() (tongues, error) {
	files, err := textFiles.ReadDir("texts")
	if err != nil {
		return tongues{}, fmt.Errorf("read texts: %w", err)
	}
	var ts tongues
	for _, f := range files {
		t, err := loadTongue(path.Join("texts", f.Name()))
		if err != nil {
			return tongues{}, err
		}
		ts.all = append(ts.all, t)
	}
	main := ts.find(mainTongue)
	if main == nil {
		return tongues{}, fmt.Errorf("read texts: there is no %s.yaml", mainTongue)
	}
	slices.SortFunc(ts.all, func(a, b *tongue) int {
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

func loadTongue(file string) (*tongue, error) {
	data, err := textFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	t := &tongue{}
	if err := yaml.Unmarshal(data, &t.texts); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	t.code, t.name, t.dir = t.word("lang"), t.word("language.name"), t.word("dir")
	if t.tag, err = language.Parse(t.code); err != nil || path.Base(file) != t.code+".yaml" {
		return nil, fmt.Errorf("read %s: lang is %q; it must be the language's tag and the file's name", file, t.code)
	}
	return t, nil
}

// find gives the language of a code that was chosen on a page, or nil.
func (ts tongues) find(code string) *tongue {
	for _, t := range ts.all {
		if t.code == code {
			return t
		}
	}
	return nil
}

// match gives the language that suits a browser best.
func (ts tongues) match(r *http.Request) *tongue {
	accept := strings.Join(r.Header.Values("Accept-Language"), ",")
	if len(accept) > acceptMostBytes {
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
