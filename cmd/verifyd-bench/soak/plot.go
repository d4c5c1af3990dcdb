package soak

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// The measures of a plot, in pixels.
const (
	plotWidth, plotHeight = 900, 180
	plotLeft, plotTop     = 70, 30
)

var colours = []string{"#0b6e4f", "#b5179e", "#1d4e89"}

// plot draws each figure over the time, as SVG.
func (w *watch) plot() []byte {
	var names []string
	for _, s := range append([]*series{w.kept}, w.all...) {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	var b strings.Builder
	height := len(names) * (plotHeight + 2*plotTop)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", plotWidth+plotLeft+150, height)
	for i, name := range names {
		var of []*series
		for _, s := range append([]*series{w.kept}, w.all...) {
			if s.Name == name {
				of = append(of, s)
			}
		}
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`, plotLeft, plotTop+i*(plotHeight+2*plotTop))
		panel(&b, of)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// panel draws the figures of one name.
func panel(b *strings.Builder, of []*series) {
	var highest, last float64
	for _, s := range of {
		highest = max(highest, slices.Max(append([]float64{1}, s.Values...)))
		if n := len(s.At); n > 0 {
			last = max(last, s.At[n-1].Seconds())
		}
	}
	fmt.Fprintf(b, `<text x="0" y="-8" font-weight="bold">%s %s</text>`, html.EscapeString(of[0].Name),
		of[0].Unit)
	fmt.Fprintf(b, `<path d="M0 0V%d H%d" fill="none" stroke="#888"/>`, plotHeight, plotWidth)
	fmt.Fprintf(b, `<text x="-8" y="10" text-anchor="end">%.0f</text>`, highest)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%.0f min</text>`, plotWidth, plotHeight+16, last/60)
	for i, s := range of {
		var points []string
		for j, v := range s.Values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", s.At[j].Seconds()/max(last, 1)*plotWidth,
				plotHeight-v/highest*plotHeight))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`, colour,
			strings.Join(points, " "))
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`, plotWidth+8, 12+16*i, colour,
			html.EscapeString(s.Of))
	}
}
