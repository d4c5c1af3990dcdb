package page

import (
	"fmt"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Typed draws a text that somebody else wrote: escaped, isolated in its direction (UAX #9 §2.4), and with a
// sign in the place of every invisible character, since such characters make two accounts look like one. A
// text with a long piece in which a line cannot be broken has the class "long", for style sheets to break it
// anywhere: if every text had it, a table would break short words to make room.
func Typed(s string) template.HTML { return typed(s, "") }

// TypedLines is Typed for a text of several lines in a <pre>: line ends and tabs stay what they are.
func TypedLines(s string) template.HTML { return typed(s, "\r\n\t") }

// typed draws a text in which some characters are seen by what they do.
func typed(s, plain string) template.HTML {
	var b strings.Builder
	runes := []rune(s)
	s = string(runes) // each broken byte is U+FFFD
	if Long(s) {
		b.WriteString(`<bdi class="long">`)
	} else {
		b.WriteString("<bdi>")
	}
	open, from := false, 0 // inside the <i> that sets signs apart from the text; where text begins
	at := 0                // of the character, in bytes
	for i, r := range runes {
		sign := !seen(runes, i) && !strings.ContainsRune(plain, r)
		if sign && from < at {
			b.WriteString(template.HTMLEscapeString(s[from:at]))
		}
		switch {
		case sign && open:
			b.WriteByte(' ')
		case sign:
			b.WriteString("<i>")
		case open:
			b.WriteString("</i>")
		}
		open = sign
		at += utf8.RuneLen(r)
		if sign {
			fmt.Fprintf(&b, "U+%04X", r)
			from = at
		}
	}
	if open {
		b.WriteString("</i>")
	}
	b.WriteString(template.HTMLEscapeString(s[from:]))
	b.WriteString("</bdi>")
	return template.HTML(b.String()) //nolint:gosec // every piece is escaped above or written by this function
}

// longPiece is the length that every line of our pages has room for: on a phone of 320 pixels, 17 wide
// letters in bold stick out of a table.
const longPiece = 16

// Long reports whether a text has a piece without a space that may be longer than a line, which Typed marks.
func Long(text string) bool {
	for piece := range strings.SplitSeq(text, " ") {
		if utf8.RuneCountInString(piece) > longPiece {
			return true
		}
	}
	return false
}

// signRoom is the room that a sign takes, in characters: U+200B and the space before it.
const signRoom = 7

// Room returns the room that Typed takes for a text, in characters.
func Room(text string) (n int) {
	runes := []rune(text)
	for i := range runes {
		if seen(runes, i) {
			n++
		} else {
			n += signRoom
		}
	}
	return n
}

const (
	zeroWidthJoiner = '\u200D'
	emojiSelector   = '\uFE0F'
	keycap          = '\u20E3'
	brailleBlank    = '\u2800' // a symbol by its category, but invisible
)

// seen reports whether the character at i is visible by itself. Joiners and selectors that hold an emoji
// together count as seen: with signs between its parts, an emoji could not be read.
func seen(text []rune, i int) bool {
	r := text[i]
	if ' ' <= r && r <= '~' {
		return true
	}
	if r == brailleBlank {
		return false
	}
	if !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return true
	}
	if unicode.Is(unicode.Prepended_Concatenation_Mark, r) { // of category Cf, but drawn
		return true
	}
	var before, after rune
	if i > 0 {
		before = text[i-1]
	}
	if i+1 < len(text) {
		after = text[i+1]
	}
	switch r {
	case zeroWidthJoiner:
		return (symbol(before) || before == emojiSelector) && symbol(after)
	case emojiSelector:
		return symbol(before) || after == keycap
	}
	return false
}

// symbol covers emoji and their skin tones.
func symbol(r rune) bool { return r != brailleBlank && unicode.In(r, unicode.So, unicode.Sk) }
