package signin

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/page/drawn"
	"verifyd/sessions"
)

// keptPages returns everyPage's views as cacheable pages of a session, the question first.
func keptPages(words *locale) (views []view) {
	token := sessions.NewToken("", nil).Reveal()
	for _, v := range everyPage(words) {
		delete(v.values, "app")
		v.token, v.Again, v.Code, v.InApp, v.Choices = token, "", "", nil, nil
		v.Languages = "?session=" + token + "&lang="
		switch v.Kind {
		case pageAsk.name:
			v.Session, v.Expires = token, "2026-11-24T18:19:00Z"
		case pageConfirm.name: // it has a code
			continue
		}
		views = append(views, v)
	}
	return views
}

// A kept page is, byte for byte, what its template renders, whatever the session's own values and the order
// of requests.
func TestKeptPagesAreTheirTemplates(t *testing.T) {
	p := pages{material: must(loadMaterial())(t), drawn: drawn.New[drawing](maxKept)}
	for _, words := range p.locales.all {
		for i, text := range []string{
			"x", "<b>&amp;'\"", "a\u202eb\x00", strings.Repeat("wide", 300), "{asker}", "مرفأ",
		} {
			for _, v := range keptPages(words) {
				byTemplate := v
				byTemplate.token, byTemplate.values = "", maps.Clone(v.values)
				for name := range v.values {
					v.values[name], byTemplate.values[name] = text+name, text+name
				}
				v.Facts = slices.Clone(v.Facts)[:1+i%3]
				for at := range v.Facts {
					v.Facts[at].Value = text + fmt.Sprint(at)
				}
				byTemplate.Facts = v.Facts
				want := must(p.paint(byTemplate))(t)
				if got := must(p.paint(v))(t); string(got) != string(want) {
					t.Fatalf("%s %s with %q, kept:\n%s\nby its template:\n%s", words.code, v.Kind, text, got,
						want)
				}
			}
		}
	}
}

// Each part of a page's look makes it another page: if any of them differs, the kept page of one is not shown
// for the other.
func TestKeptPagesDifferByTheirLook(t *testing.T) {
	ts := must(loadLocales())(t)
	one := keptPages(ts.all[0])[0]
	key := func(v view) drawing {
		v.Rows = rowsOf(v.Facts)
		d, _, ok := v.drawing()
		if !ok {
			t.Fatal("the page is not kept")
		}
		return d
	}
	for field := range reflect.TypeFor[look]().Fields() {
		other := one
		if f := reflect.ValueOf(&other.look).Elem().FieldByIndex(field.Index); f.CanSet() {
			change(t, f)
		} else { // words and count
			other.words, other.count = ts.all[1], one.count+1
		}
		if key(other) == key(one) {
			t.Errorf("another %s is the same page", field.Name)
		}
	}
	for field := range reflect.TypeFor[button]().Fields() {
		other := one
		other.Buttons = slices.Clone(one.Buttons)
		change(t, reflect.ValueOf(&other.Buttons[0]).Elem().FieldByIndex(field.Index))
		if key(other) == key(one) {
			t.Errorf("a button with another %s is the same page", field.Name)
		}
	}
	// A field outside of the look is the session's own, keeps a page from being kept, or is rendered in no
	// page. A new field belongs into the look, unless it is one of these.
	own := []string{
		"look", "Session", "Facts", "Rows", "Buttons", "Expires", "Code", "Again", "InApp", "Choices",
		"token", "values", "typed", "retryAfter", "refresh", "status", "formAction",
	}
	for field := range reflect.TypeFor[view]().Fields() {
		if !slices.Contains(own, field.Name) {
			t.Errorf("nothing says whether pages that differ in %s are the same", field.Name)
		}
	}
}

// change sets a field to another value.
func change(t *testing.T, f reflect.Value) {
	t.Helper()
	switch f.Kind() {
	case reflect.String:
		f.SetString(f.String() + "x")
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.Struct:
		change(t, f.Field(0))
	default:
		t.Fatalf("a field of kind %s", f.Kind())
	}
}
