package signin

import (
	"slices"
	"strings"

	"verifyd/edge/network"
	"verifyd/edge/page"
)

// formAction says where the page's forms may lead. Chromium applies it not only to the form's own target but
// to every redirect that follows its POST, so to the provider and to wherever the provider redirects before
// it draws a page: its own login host, an identity provider behind it. Those hosts cannot be known, hence
// https as a whole; what the form itself posts to is fixed in the page, which has no script that could change
// it. Plain http is for networks on this very machine, named exactly.
func (h *Handler) formAction(networks []*network.Network) string {
	sources := []string{"'self'", "https:"}
	for _, n := range networks {
		for _, source := range page.PlainSources(n.AuthorizationOrigin(), h.https) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return strings.Join(sources, " ")
}
