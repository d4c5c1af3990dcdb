package logo_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/account/branding"
	"verifyd/edge/account/branding/logo"
)

// drawn is a picture with a disc on a transparent background.
func drawn(width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			if dx, dy := x-height/2, y-height/2; dx*dx+dy*dy < height*height/5 {
				m.SetNRGBA(x, y, color.NRGBA{0x1f, 0x5f, 0xd0, 0xff})
			}
		}
	}
	return m
}

// noise is a picture that nothing compresses.
func noise(width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(m.Pix)
	return m
}

func asPNG(tb testing.TB, m image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(tb testing.TB, m image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func file(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// bits writes numbers, their least bit first, as lossless WebP does.
type bits struct {
	b []byte
	n int
}

func (w *bits) put(value, length int) {
	for i := range length {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.n/8] |= byte(value>>i&1) << (w.n % 8)
		w.n++
	}
}

func chunk(kind string, data []byte) []byte {
	c := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(data)))
	c = append(c, data...)
	return append(c, make([]byte, len(data)%2)...)
}

func riff(chunks ...[]byte) []byte {
	all := slices.Concat(chunks...)
	return slices.Concat(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(all))),
		[]byte("WEBP"), all)
}

// lossless is a picture of one colour, in two dozen bytes however large it is.
func lossless(width, height int) []byte {
	w := bits{b: []byte{0x2f}, n: 8}
	w.put(width-1, 14)
	w.put(height-1, 14)
	w.put(0, 1+3+1+1+1) // no alpha, version 0, no transform, no cache, one group
	for _, value := range []int{0x5f, 0x1f, 0xd0, 0xff} {
		w.put(1|0<<1|1<<2, 3) // one symbol of eight bits
		w.put(value, 8)
	}
	w.put(1, 4) // distances: one symbol of one bit
	return chunk("VP8L", w.b)
}

func extended(flags byte, width, height int) []byte {
	data := []byte{flags, 0, 0, 0, byte(width - 1), byte((width - 1) >> 8), 0, byte(height - 1),
		byte((height - 1) >> 8), 0}
	return chunk("VP8X", data)
}

// declaring is a PNG whose header declares another size than it has.
func declaring(tb testing.TB, width, height int) []byte {
	tb.Helper()
	p := asPNG(tb, drawn(20, 20))
	binary.BigEndian.PutUint32(p[16:], uint32(width))
	binary.BigEndian.PutUint32(p[20:], uint32(height))
	binary.BigEndian.PutUint32(p[29:], crc32.ChecksumIEEE(p[12:29]))
	return p
}

// adobeCMYK is a JPEG of four components, as programs for print write them.
func adobeCMYK(tb testing.TB) []byte {
	tb.Helper()
	grey := image.NewGray(image.Rect(0, 0, 32, 32))
	one := asJPEG(tb, grey)
	sof := bytes.Index(one, []byte{0xff, 0xc0})
	sos := bytes.Index(one, []byte{0xff, 0xda})
	frame := slices.Clone(one[sof+4 : sof+4+6]) // precision, height, width, components
	frame[5] = 4
	scan := []byte{4}
	for id := byte(1); id <= 4; id++ {
		frame = append(frame, id, 0x11, 0)
		scan = append(scan, id, 0)
	}
	scan = append(scan, 0, 63, 0)
	segment := func(marker byte, data []byte) []byte {
		return append([]byte{0xff, marker, 0, byte(len(data) + 2)}, data...)
	}
	between := one[sof+2+int(one[sof+2])<<8+int(one[sof+3]) : sos]
	adobe := segment(0xee, []byte("Adobe\x00\x64\x00\x00\x00\x00\x02"))
	body := bytes.Repeat([]byte{0x28, 0xa2, 0x8a}, 16) // 64 times 001010: as before, and nothing else
	return slices.Concat(one[:2], adobe, one[2:sof], segment(0xc0, frame), between, segment(0xda, scan), body,
		[]byte{0xff, 0xd9})
}

// good checks the result: a PNG of ours, within its bounds, with the picture and nothing else of the file.
func good(tb testing.TB, l *branding.Logo) {
	tb.Helper()
	m, err := png.Decode(bytes.NewReader(l.PNG))
	if err != nil {
		tb.Fatalf("what comes out is no PNG: %v", err)
	}
	size := m.Bounds()
	if size.Dx() != l.Width || size.Dy() != l.Height || l.Width > 288 || l.Height > 96 ||
		len(l.PNG) > logo.MaxBytes ||
		len(l.Digest) != 64 {
		tb.Errorf("%d × %d of %v, %d bytes", l.Width, l.Height, size, len(l.PNG))
	}
	for rest := l.PNG[8:]; len(rest) >= 8; rest = rest[12+binary.BigEndian.Uint32(rest):] {
		if kind := string(rest[4:8]); kind != "IHDR" && kind != "IDAT" && kind != "IEND" &&
			kind != "PLTE" && kind != "tRNS" {
			tb.Errorf("it has a chunk %q", kind)
		}
	}
}

func TestPictures(t *testing.T) {
	t.Parallel()
	progressive, rotated := drawn(600, 150), image.NewPaletted(image.Rect(5, 7, 105, 57), color.Palette{
		color.Black, color.White,
	})
	for name, c := range map[string]struct {
		file          []byte
		width, height int
	}{
		"PNG":             {asPNG(t, drawn(400, 100)), 288, 72},
		"small":           {asPNG(t, drawn(40, 40)), 40, 40},
		"tall":            {asPNG(t, drawn(100, 800)), 12, 96},
		"16 bits":         {asPNG(t, image.NewNRGBA64(image.Rect(0, 0, 200, 20))), 200, 20},
		"grey":            {asPNG(t, image.NewGray(image.Rect(0, 0, 64, 64))), 64, 64},
		"palette":         {asPNG(t, rotated), 100, 50},
		"JPEG":            {asJPEG(t, progressive), 288, 72},
		"CMYK":            {adobeCMYK(t), 32, 32},
		"lossless WebP":   {riff(lossless(64, 32)), 64, 32},
		"lossy WebP":      {file(t, "lossy.webp"), 64, 32},
		"WebP with alpha": {file(t, "alpha.webp"), 64, 32},
		"extended WebP":   {riff(extended(0, 64, 32), lossless(64, 32)), 64, 32},
	} {
		l, err := logo.Read(c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		good(t, l)
		if l.Width != c.width || l.Height != c.height {
			t.Errorf("%s: %d × %d, want %d × %d", name, l.Width, l.Height, c.width, c.height)
		}
	}
	l, err := logo.Read(asPNG(t, drawn(100, 50)))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := png.Decode(bytes.NewReader(l.PNG))
	if got := color.NRGBAModel.Convert(m.At(25, 25)); got != (color.NRGBA{0x1f, 0x5f, 0xd0, 0xff}) {
		t.Errorf("the disc is %v", got)
	}
	if _, _, _, a := m.At(90, 45).RGBA(); a != 0 {
		t.Error("the ground is not clear any more")
	}
}

// A picture that does not compress is blurred: a logo is never refused for what it shows.
func TestNoiseBecomesSmall(t *testing.T) {
	t.Parallel()
	l, err := logo.Read(asPNG(t, noise(400, 300)))
	if err != nil {
		t.Fatal(err)
	}
	good(t, l)
	if l.Width >= 128 || l.Width < 16 {
		t.Errorf("%d × %d", l.Width, l.Height)
	}
}

// Only the pixels of a file are kept: no location where it was taken, no script for programs that read the
// bytes as something else.
func TestNothingElseComesOut(t *testing.T) {
	t.Parallel()
	const planted = "<script>alert(1)</script>GPS 54.3233 N"
	plain := asPNG(t, drawn(64, 64))
	text := slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(8+len(planted))),
		[]byte("tEXt"+"Comment\x00"+planted))
	text = binary.BigEndian.AppendUint32(text, crc32.ChecksumIEEE(text[4:]))
	j := asJPEG(t, drawn(64, 64))
	exif := slices.Concat([]byte{0xff, 0xe1, 0, byte(len(planted) + 8)}, []byte("Exif\x00\x00"),
		[]byte(planted))
	var zip bytes.Buffer
	w := gzip.NewWriter(&zip)
	_, _ = w.Write([]byte(planted))
	_ = w.Close()
	for name, file := range map[string][]byte{
		"a text chunk":      slices.Concat(plain[:33], text, plain[33:]),
		"behind a PNG":      append(slices.Clone(plain), planted...),
		"an archive behind": slices.Concat(plain, zip.Bytes()),
		"EXIF":              slices.Concat(j[:2], exif, j[2:]),
		"behind a JPEG":     append(slices.Clone(j), planted...),
		"a WebP chunk":      riff(extended(0x08, 64, 64), lossless(64, 64), chunk("EXIF", []byte(planted))),
	} {
		l, err := logo.Read(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		good(t, l)
		if bytes.Contains(l.PNG, []byte("script")) || bytes.Contains(l.PNG, []byte("GPS")) ||
			bytes.Contains(l.PNG, zip.Bytes()[:8]) {
			t.Errorf("%s comes out again", name)
		}
	}
}

// bombs are files that would take all memory or time if their headers were not checked first.
func bombs(tb testing.TB) map[string][]byte {
	tb.Helper()
	passes := func() []byte {
		j := asJPEG(tb, image.NewGray(image.Rect(0, 0, 64, 64)))
		sos := bytes.Index(j, []byte{0xff, 0xda})
		return slices.Concat(j[:sos], bytes.Repeat(j[sos:len(j)-2], 2000), []byte{0xff, 0xd9})
	}
	jpegOf := func(width, height int) []byte {
		j := asJPEG(tb, image.NewGray(image.Rect(0, 0, 64, 64)))
		at := bytes.Index(j, []byte{0xff, 0xc0}) + 5
		binary.BigEndian.PutUint16(j[at:], uint16(height))
		binary.BigEndian.PutUint16(j[at+2:], uint16(width))
		return j
	}
	return map[string][]byte{
		"a PNG that says it is huge":    declaring(tb, 1<<31-1, 1<<31-1),
		"a PNG of 4,097 on a side":      declaring(tb, 4097, 100),
		"a PNG of 16 megapixels":        declaring(tb, 4096, 4096),
		"a WebP of 4 megapixels":        riff(lossless(2048, 2048)),
		"a JPEG that says it is huge":   jpegOf(65535, 65535),
		"a JPEG of thousands of passes": passes(),
		"a WebP of 16,384 on a side":    riff(lossless(16384, 16384)),
		"a WebP that is huge inside":    riff(extended(0, 64, 64), lossless(16384, 16384)),
		"a lossy WebP that is huge":     patched(tb, 16383, 16383),
		"a lossy WebP, huge inside":     riff(extended(0, 64, 64), patched(tb, 16383, 16383)[12:]),
		"a WebP whose alpha is huge": riff(extended(0x10, 16384, 16384), chunk("ALPH", append([]byte{1},
			lossless(16384, 16384)[8:]...)), file(tb, "lossy.webp")[12:]),
	}
}

// patched is a lossy WebP whose picture declares another size than it has.
func patched(tb testing.TB, width, height int) []byte {
	tb.Helper()
	f := file(tb, "lossy.webp")
	at := bytes.Index(f, []byte("VP8 "))
	data := slices.Clone(f[at:])
	start := bytes.Index(data, []byte{0x9d, 0x01, 0x2a}) + 3
	binary.LittleEndian.PutUint16(data[start:], uint16(width))
	binary.LittleEndian.PutUint16(data[start+2:], uint16(height))
	return riff(data)
}

// A bomb is refused by its header, and no decoder gets it. Two declare an ordinary size and are huge inside:
// their decoder refuses them itself, and takes no memory for the picture.
func TestBombs(t *testing.T) {
	decoded := 0
	logo.OnDecode(t, func() { decoded++ })
	for name, file := range bombs(t) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decoded = 0
		_, err := logo.Read(file)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "are allowed") && !strings.Contains(err.Error(),
			"passes") &&
			!strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if inside := strings.HasSuffix(name, "inside"); decoded != 0 && !inside {
			t.Errorf("%s: a decoder gets it", name)
		}
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 8<<20 {
			t.Errorf("%s: %d bytes", name, grew)
		}
	}
	decoded = 0
	// a picture like any other is decoded, so the count would show a bomb that is
	if _, err := logo.Read(asPNG(t, drawn(64, 64))); err != nil || decoded != 1 {
		t.Errorf("an ordinary picture is decoded %d times: %v", decoded, err)
	}
}

func TestOtherFiles(t *testing.T) {
	t.Parallel()
	p := asPNG(t, drawn(64, 64))
	var moving bytes.Buffer
	if err := gif.Encode(&moving, drawn(64, 64), nil); err != nil {
		t.Fatal(err)
	}
	animation := riff(extended(0x02, 64, 64), chunk("ANIM", make([]byte, 6)),
		chunk("ANMF", append(make([]byte, 16), lossless(64, 64)...)))
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"nothing":           {nil, "the file is empty; choose a PNG, JPEG or WebP picture"},
		"a text":            {[]byte("logo"), "is not a PNG, JPEG or WebP picture"},
		"an SVG":            {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`), "is not a PNG"},
		"a GIF":             {moving.Bytes(), "is not a PNG"},
		"a PNG cut short":   {p[:len(p)/2], "damaged"},
		"a PNG's beginning": {p[:8], "damaged"},
		"a JPEG cut short":  {asJPEG(t, drawn(64, 64))[:300], "damaged"},
		"a WebP cut short":  {riff(lossless(64, 64))[:30], "damaged"},
		"an animation":      {animation, "animated; save the logo as PNG"},
		"a line":            {asPNG(t, drawn(1000, 16)), "at most 12 times the shorter"},
		"a dot":             {asPNG(t, drawn(15, 15)), "at least 16 on each side"},
		"too many bytes":    {append(p, make([]byte, logo.MaxFileBytes)...), "at most 1048576 are allowed"},
	} {
		l, err := logo.Read(c.file)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want %q", name, l, err, c.says)
		}
	}
}

// FuzzRead: for any file, the result is a picture of ours or an error that describes what is wrong.
func FuzzRead(f *testing.F) {
	for _, b := range bombs(f) {
		f.Add(b)
	}
	for _, b := range [][]byte{
		asPNG(f, drawn(32, 20)), asPNG(f, image.NewNRGBA64(image.Rect(0, 0, 16, 16))), asJPEG(f, drawn(32,
			20)),
		adobeCMYK(f), riff(lossless(32, 20)), file(f, "lossy.webp"), file(f, "alpha.webp"),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		// A few bytes may declare two megapixels. Under the fuzzer, beside other work, these take
		// longer than the ten seconds after which it calls an input hung.
		c, _, err := image.DecodeConfig(bytes.NewReader(file))
		if n := c.Width * c.Height; err == nil && n > 1<<16 && n <= 2<<20 {
			return
		}
		l, err := logo.Read(file)
		if (l == nil) == (err == nil) {
			t.Fatalf("%v and %v", l, err)
		}
		if err == nil {
			good(t, l)
		}
	})
}
