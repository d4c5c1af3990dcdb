// Package edge holds the sources of package client and of what it imports. The service hands them out as a
// Go module.
//
// It is small: a Go file embeds only what is in its own folder, or below.
package edge

import "embed"

// Client is the folder client, without its tests, and the package below it that it imports: builds that leave
// tests out have the same bytes.
//
//go:embed client/call/base.go client/call/call.go client/call/problem.go
//go:embed client/client.go client/doc.go client/listen.go client/problem.go client/receiver.go
//go:embed client/seen.go client/session.go client/signingkeys.go client/usage.go client/verify.go
var Client embed.FS
