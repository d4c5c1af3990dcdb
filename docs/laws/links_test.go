package laws

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	notAName  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// The targets of a document's links within the repository exist: the file, and the heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := 0
	err := eachFile(".md", func(name, path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if !leadsTo(to, anchor) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 30 {
		t.Errorf("%d links; are they read?", links)
	}
}

// leadsTo reports whether a file exists, with a heading for the anchor, if there is one.
func leadsTo(file, anchor string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		info, err := os.Stat(file)
		return anchor == "" && err == nil && info.IsDir()
	}
	if anchor == "" {
		return true
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		name := strings.ToLower(notAName.ReplaceAllString(m[1], ""))
		if strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}
	return false
}
