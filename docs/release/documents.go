package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	link      = regexp.MustCompile(`\]\(([^)\s#]+)[^)\s]*\)`)
)

// documents returns the README and what it leads to, link by link, by their names in the repository: wherever
// they are put together, each link leads somewhere.
func (b *builder) documents() (all []file, err error) {
	seen := map[string]bool{}
	repository := os.DirFS(b.root)
	for to := []string{"README.md"}; len(to) > 0; to = to[1:] {
		err := fs.WalkDir(repository, to[0], func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || seen[name] {
				return err
			}
			seen[name] = true
			data, err := fs.ReadFile(repository, name)
			all = append(all, file{name: name, mode: 0o644, data: data})
			if path.Ext(name) == ".md" {
				to = append(to, links(name, data)...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(x, y file) int { return strings.Compare(x.name, y.name) })
	return all, nil
}

// links returns the files and folders of the repository that a document links to.
func links(name string, text []byte) (to []string) {
	for _, m := range link.FindAllSubmatch(codeBlock.ReplaceAll(text, nil), -1) {
		if href := string(m[1]); !strings.Contains(href, ":") {
			to = append(to, path.Join(path.Dir(name), href))
		}
	}
	return to
}
