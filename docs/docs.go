// Package docs holds the documents of this folder as text, for programs that show them elsewhere: the service
// does, at {base_url}/docs (package edge/guide).
//
// It is small: a Go file embeds only what is in its own folder, or below.
package docs

import "embed"

// Files are the documents, and the pictures in them, by their names in this folder.
//
//go:embed *.md verify/*.md
//go:embed screens/sign-in-*-390.png screens/sign-in-ask-sign-390-dark.png
var Files embed.FS
