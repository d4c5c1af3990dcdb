package laws

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// darkSheets is the number of style sheets with rules for dark colours below which they are no longer found.
const darkSheets = 2

var (
	darkRules   = regexp.MustCompile(`(?s)@media \(prefers-color-scheme: dark\) \{\n.*?\n\}`)
	declaration = regexp.MustCompile(`(?m)^\s*([\w-]+): (.+);$`)
	// paints is what neither moves nor resizes a box.
	paints = regexp.MustCompile(`^(background|color|border-color|box-shadow|border-radius): `)
	// colourToken is a token that is a colour; some tokens are lengths and fonts.
	colourToken = regexp.MustCompile(`^--[\w-]+: #[0-9a-f]{3,6}$`)
)

// The dark colours change what a page paints and not where anything is: what a test sees of a page's layout
// in the light colours holds in the dark ones.
func TestDarkColoursMoveNothing(t *testing.T) {
	t.Parallel()
	sheets := 0
	if err := eachFile(".css", func(name, path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rules := darkRules.FindAllString(string(text), -1)
		if len(rules) != strings.Count(string(text), "prefers-color-scheme") {
			t.Errorf("%s: a rule of a colour scheme is not read; begin it with "+
				"\"@media (prefers-color-scheme: dark) {\" on a line of its own", name)
		}
		for _, rule := range rules {
			sheets++
			for _, d := range declaration.FindAllStringSubmatch(rule, -1) {
				if set := d[1] + ": " + d[2]; !paints.MatchString(set) && !colourToken.MatchString(set) {
					t.Errorf("%s: %q may move a box in the dark colours alone; set colours there", name, set)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if sheets < darkSheets {
		t.Errorf("%d rules for dark colours are found, want %d", sheets, darkSheets)
	}
}
