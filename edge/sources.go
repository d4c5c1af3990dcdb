// Package edge holds the sources of package client, which the service hands out as a Go module.
package edge

import "embed"

// Client is the folder client, with its tests, which are not handed out.
//
//go:embed client/*.go
var Client embed.FS
