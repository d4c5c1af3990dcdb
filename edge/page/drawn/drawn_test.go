package drawn_test

import (
	"errors"
	"html/template"
	"strings"
	"sync"
	"testing"

	"verifyd/edge/page/drawn"
)

// letter renders a page with its own texts in the order of its key.
func letter(key string) func(own []template.HTML) ([]byte, error) {
	return func(own []template.HTML) ([]byte, error) {
		if key == "broken" {
			return nil, errors.New("broken")
		}
		return []byte(strings.NewReplacer("a", string(own[0]), "b", string(own[1])).Replace(key)), nil
	}
}

// Concurrent requests get a page with their own texts, whether it was kept before or had to be rendered.
func TestPagesHaveTheirOwnTexts(t *testing.T) {
	const limit = 4
	p := drawn.New[string](limit)
	keys := []string{"", "-", "a", "-a-", "ab", "b-a-b", "<a><b>", "aa", "-b"}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				key := keys[i%len(keys)]
				own := []template.HTML{"&lt;" + template.HTML(key), template.HTML(strings.Repeat("x", i%3))}
				want, _ := letter(key)(own)
				got, err := p.Draw(key, own, letter(key))
				if err != nil || string(got) != string(want) {
					t.Errorf("%q: %q, %v; want %q", key, got, err, want)
					return
				}
			}
		})
	}
	all.Wait()
}

// A page that cannot be drawn is not kept.
func TestErrorsOfDrawing(t *testing.T) {
	p := drawn.New[string](1)
	for range 2 {
		if got, err := p.Draw("broken", make([]template.HTML, 2), letter("broken")); err == nil {
			t.Errorf("it is drawn as %q", got)
		}
	}
}
