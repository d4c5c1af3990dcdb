// Package version knows which build this is.
package version

import "runtime/debug"

// built is set by the build: -ldflags "-X verifyd/cmd/verifyd/version.built=v1.2.3".
var built = ""

// Text returns the version that was built in, or what Go recorded of the build.
func Text() string {
	if built != "" {
		return built
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
