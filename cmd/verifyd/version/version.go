// Package version identifies this build. It is small: packages that name the build import it, and it imports
// none of ours.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// number is the version of this source, or the one that it will be released as (semantic versioning;
// CHANGELOG.md).
const number = "0.10.0"

// What a release is built with, by -ldflags "-X verifyd/cmd/verifyd/version.built=0.9.0". The commit and its
// date replace those of the repository if the build does not see one.
var built, commit, date = "", "", ""

// commitShown is how many characters of a commit are shown.
const commitShown = 12

// Number returns the version without the suffix of development builds: the version of the SDKs.
func Number() string { return number }

// Text returns the version: 0.9.0 for a release, and 0.9.0-dev+5221851a2264 for a development build, with the
// commit if it is known.
func Text() string {
	if built != "" {
		return built
	}
	if hash, _, _ := source(); hash != "" {
		return number + "-dev+" + hash[:min(commitShown, len(hash))]
	}
	return number + "-dev"
}

// Details returns the version with the commit, its date, and what it was built with.
func Details() string {
	facts := make([]string, 0, 4)
	hash, at, changed := source()
	if hash != "" {
		facts = append(facts, "commit "+hash)
	}
	if changed {
		facts = append(facts, "with changes")
	}
	if at != "" {
		facts = append(facts, at)
	}
	facts = append(facts, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("%s (%s)", Text(), strings.Join(facts, ", "))
}

// source returns the commit that this was built from and its date, empty if they are not known, and whether
// files have changed since.
func source() (hash, at string, changed bool) {
	if commit != "" {
		return commit, date, false
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			hash = s.Value
		case "vcs.time":
			at = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	return hash, at, changed
}
