// Package logo reads the pictures that people upload as logos. They are hostile: the result is a PNG that
// this service has encoded from pixels alone, small enough for a record and a page.
//
// The law: the size in a picture's header is judged before the picture is decoded, and no byte of the file
// comes out again. No file makes the service panic, or hold more than some tens of megabytes for a moment.
package logo

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"

	"verifyd/edge/account/branding"
)

const (
	// MaxFileBytes bounds an upload: a logo for print has some hundreds of kilobytes.
	MaxFileBytes = 1 << 20
	// maxSide and maxPixels bound a picture that is decoded: 2 megapixels are 8 MB of memory, 16 with 16 bits
	// a channel, and up to 0.15 s of a processor, even in a WebP of 32 bytes.
	maxSide   = 4096
	maxPixels = 2 << 20
	// maxWidth and maxHeight are the room of a logo on the page, twice as dense as its CSS pixels.
	maxWidth, maxHeight = 288, 96
	// minSide is the smallest side that can be seen at all.
	minSide = 16
	// MaxBytes bounds the result. An ordinary page has some 11 KB: with its logo it stays below 30,000 bytes.
	MaxBytes = 12 << 10
)

// maxScans bounds the passes of a progressive JPEG: a pass of a few bytes makes the decoder go through all
// pixels again. Encoders write about ten.
const maxScans = 64

// format is a kind of picture that is accepted.
type format struct {
	name         string
	is           func(file []byte) bool
	decodeConfig func(io.Reader) (image.Config, error)
	decode       func(io.Reader) (image.Image, error)
}

// formats are judged by their first bytes, whatever the file's name and the browser's media type.
var formats = []format{
	{"PNG", begins("\x89PNG\r\n\x1a\n"), png.DecodeConfig, png.Decode},
	{"JPEG", begins("\xff\xd8\xff"), jpeg.DecodeConfig, jpeg.Decode},
	{"WebP", isWebP, webp.DecodeConfig, webp.Decode},
}

func isWebP(file []byte) bool {
	return len(file) >= 16 && string(file[:4]) == "RIFF" && string(file[8:12]) == "WEBP"
}

func begins(magic string) func([]byte) bool {
	return func(file []byte) bool { return bytes.HasPrefix(file, []byte(magic)) }
}

// Read reads a file and returns the logo that it shows, no larger than its room on the page. The error
// describes what is wrong with the file and what is valid.
func Read(file []byte) (*branding.Logo, error) {
	if err := CheckSize(int64(len(file))); err != nil {
		return nil, err
	}
	f, err := formatOf(file)
	if err != nil {
		return nil, err
	}
	if err := f.judge(file); err != nil {
		return nil, err
	}
	picture, err := f.decoded(file)
	if err != nil {
		return nil, f.damaged(err)
	}
	return fit(picture)
}

// CheckSize refuses a file of so many bytes, if it is too large to be read.
func CheckSize(size int64) error {
	if size > MaxFileBytes {
		return fmt.Errorf("the file has %d bytes; at most %d are allowed", size, MaxFileBytes)
	}
	return nil
}

// judge refuses a file whose header declares a picture that is too large or too small.
func (f format) judge(file []byte) error {
	switch size, err := f.decodeConfig(bytes.NewReader(file)); {
	case err != nil:
		return f.damaged(err)
	case f.name == "JPEG" && bytes.Count(file, startOfScan) > maxScans:
		return errors.New("the JPEG picture has too many passes; save it again, for example as PNG")
	case size.Width > maxSide, size.Height > maxSide, size.Width*size.Height > maxPixels:
		return fmt.Errorf("the picture has %d × %d pixels; at most %d on a side and %d megapixels "+
			"are allowed", size.Width, size.Height, maxSide, maxPixels>>20)
	case size.Width < minSide, size.Height < minSide:
		return fmt.Errorf("the picture has %d × %d pixels; it needs at least %d on each side",
			size.Width, size.Height, minSide)
	case size.Width > maxShape*size.Height, size.Height > maxShape*size.Width:
		return fmt.Errorf("the picture has %d × %d pixels; the longer side may be at most %d times the "+
			"shorter", size.Width, size.Height, maxShape)
	}
	return nil
}

// startOfScan is the marker of a pass; within the passes no byte that follows FF is its own.
var startOfScan = []byte{0xff, 0xda}

// decoded decodes a file. A decoder's fault counts as a fault of the file.
func (f format) decoded(file []byte) (_ image.Image, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the decoder fails: %v", fault)
		}
	}()
	return f.decode(bytes.NewReader(file))
}

// maxShape is how much longer one side may be than the other: beyond that nothing of the shorter is left once
// the longer fits.
const maxShape = 12

func formatOf(file []byte) (format, error) {
	for _, f := range formats {
		if f.is(file) {
			return f, nil
		}
	}
	if len(file) == 0 {
		return format{}, errors.New("the file is empty; choose a PNG, JPEG or WebP picture")
	}
	return format{},
		errors.New("the file is not a PNG, JPEG or WebP picture; save the logo as one of them, for " +
			"example as PNG")
}

// damaged is for a file that does not hold what its beginning declares. The decoder's message would not help.
func (f format) damaged(err error) error {
	if f.name == "WebP" && !errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the WebP picture cannot be read: it is damaged, or animated; save the logo as PNG")
	}
	return fmt.Errorf("the %s picture cannot be read: it is damaged; save it again", f.name)
}

// fit draws a picture as large as there is room for it, and smaller where the file would be too large.
func fit(picture image.Image) (*branding.Logo, error) {
	from := picture.Bounds()
	scale := min(1, float64(maxWidth)/float64(from.Dx()), float64(maxHeight)/float64(from.Dy()))
	for {
		from = picture.Bounds()
		to := image.Rect(0, 0, max(1, int(float64(from.Dx())*scale+0.5)),
			max(1, int(float64(from.Dy())*scale+0.5)))
		drawn := image.NewRGBA(to)
		draw.CatmullRom.Scale(drawn, to, picture, from, draw.Src, nil)
		var b bytes.Buffer
		e := png.Encoder{CompressionLevel: png.BestCompression}
		if err := e.Encode(&b, drawn); err != nil {
			return nil, fmt.Errorf("encode the logo: %w", err)
		}
		if b.Len() <= MaxBytes {
			return branding.NewLogo(b.Bytes(), to.Dx(), to.Dy()), nil
		}
		picture, scale = drawn, 0.85 // a photograph; it is soft rather than refused
	}
}
