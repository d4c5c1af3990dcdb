package guide

import (
	"maps"
	"slices"

	"verifyd/edge/apidoc"
	"verifyd/edge/page"
)

// found is a search result. The names are short since each occurs in the index some hundred times.
type found struct {
	Page    string `json:"p"`           // the page's title
	Address string `json:"a"`           // with the prefix and the anchor
	Heading string `json:"h,omitempty"` // of the section; empty for the text above all of a page's
	Text    string `json:"t"`
}

// index is what the search looks through, in the order of the start page: the documents section by section,
// and the description of the interface operation by operation.
func (g *Guide) index(documents map[string]drawn, operations, problems []apidoc.Entry) []found {
	var all []found
	for i, r := range readers {
		for _, d := range r.Documents {
			made := documents[d.File]
			for _, s := range made.Sections {
				f := found{Page: made.Title, Address: g.prefix + d.path(), Text: s.text}
				if s.Level > 1 {
					f.Heading, f.Address = s.Heading, f.Address+"#"+s.ID
				}
				all = append(all, f)
			}
		}
		if i == 0 { // who integrates reads both
			for _, e := range slices.Concat(operations, problems) {
				all = append(all,
					found{apiTitle, g.prefix + PathAPI + "#" + e.ID, e.Title, e.About + " " + e.Text})
			}
		}
	}
	return all
}

// apiTitle is what the search calls the page of the interface's description.
const apiTitle = "The interface"

// sorted returns the assets in the order of their files.
func sorted(assets map[string]page.Asset) []page.Asset {
	var all []page.Asset
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		all = append(all, assets[name])
	}
	return all
}
