package signin

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/boombuler/barcode/qr"

	"verifyd/edge/account/branding"
)

// The path has each dark module once, in its place, and no other; the quiet zone around it is free.
func TestCodeIsDrawnModuleByModule(t *testing.T) {
	const text = "https://verify.example.com/?session=iPx30Nf1YxksqwSLPvkDBpNZosLCCpeqNuUdXCdJ7ng" +
		"&lang=zh-Hans"
	drawn, err := newCode(text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		t.Fatal(err)
	}
	n := want.Bounds().Dx()
	if drawn.Size != n+8 {
		t.Errorf("size %d for %d modules", drawn.Size, n)
	}
	dark := map[string]int{}
	run := regexp.MustCompile(`^M(\d+) (\d+)h(\d+)v1h-(\d+)z`)
	for path := drawn.Path; path != ""; {
		m := run.FindStringSubmatch(path)
		if m == nil || m[3] != m[4] {
			t.Fatalf("not a run: %.40q", path)
		}
		path = path[len(m[0]):]
		x, _ := strconv.Atoi(m[1])
		length, _ := strconv.Atoi(m[3])
		for i := range length {
			dark[fmt.Sprint(x+i-4, " ", m[2])]++
		}
	}
	for y := range n {
		for x := range n {
			r, _, _, _ := want.At(x, y).RGBA()
			if got := dark[fmt.Sprint(x, " ", y+4)]; got != map[bool]int{true: 1, false: 0}[r == 0] {
				t.Fatalf("module %d, %d is drawn %d times", x, y, got)
			}
			delete(dark, fmt.Sprint(x, " ", y+4))
		}
	}
	if len(dark) != 0 {
		t.Errorf("drawn outside: %v", dark)
	}
	if _, err := newCode(strings.Repeat("x", 4000)); err == nil {
		t.Error("a text too long for any code is drawn")
	}
}

// Whatever colour an account has, its letter can be read on it.
func TestSignCanBeRead(t *testing.T) {
	for r := 0; r < 256; r += 15 {
		for g := 0; g < 256; g += 15 {
			for b := 0; b < 256; b += 15 {
				s := newSign(Requester{Name: "harbor", Colour: fmt.Sprintf("#%02X%02x%02x", r, g, b)})
				if c := branding.Contrast(s.Ground, s.Ink); c < 4 {
					t.Fatalf("%s on %s: contrast %.2f", s.Ink, s.Ground, c)
				}
			}
		}
	}
	for name, want := range map[string]string{
		"«éclair»": "É", "⚓ 7 Seas": "7", "море": "М", "مرفأ": "م", "港": "港",
	} {
		if s := newSign(Requester{Name: name, Colour: "#000000"}); s.Letter != want {
			t.Errorf("%s: %+v, want %s", name, s, want)
		}
	}
	for _, none := range []Requester{
		{Name: "a"}, {Name: "a", Colour: "red"}, {Name: "a", Colour: "#12345g"},
		{Name: "⚓", Colour: "#123456"},
	} {
		if s := newSign(none); s != (sign{}) {
			t.Errorf("%+v has the sign %+v", none, s)
		}
	}
}
