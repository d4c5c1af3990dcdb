package signin

import (
	"testing"
	"time"
)

// What drawing the question costs, in each of two languages.
func BenchmarkPaint(b *testing.B) {
	ts := must(loadLocales())(b)
	p := pages{frames: must(loadFrames(ts))(b), locales: ts}
	for _, code := range []string{"en", "ar"} {
		words := p.locales.find(code)
		for _, v := range everyPage(words) {
			if v.Kind != pageAsk.name {
				continue
			}
			v.Languages = "?session=a-token-of-43-characters&lang="
			v.Expires = time.Time{}.Format(time.RFC3339)
			b.Run(code, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.paint(v); err != nil {
						b.Fatal(err)
					}
				}
			})
			break
		}
	}
}
