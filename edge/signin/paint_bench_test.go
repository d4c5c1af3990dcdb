package signin

import (
	"testing"
	"time"

	"verifyd/edge/page/drawn"
)

// The cost of rendering the question, by its template and from the cache, in each of two languages.
func BenchmarkPaint(b *testing.B) {
	p := pages{material: must(loadMaterial())(b), drawn: drawn.New[drawing](maxKept)}
	for _, code := range []string{"en", "ar"} {
		v := keptPages(p.locales.find(code))[0]
		v.Expires = time.Time{}.Format(time.RFC3339)
		for name, token := range map[string]string{"template": "", "kept": v.token} {
			v.token = token
			b.Run(name+"/"+code, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.paint(v); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
