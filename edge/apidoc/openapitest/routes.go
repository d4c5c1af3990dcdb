package openapitest

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/web"
)

var (
	// listed matches a line of a doc comment that begins with methods and paths.
	listed = regexp.MustCompile(`(?m)^//\t((?:[A-Z]+,? +)+)(/[^\s,]*(?:, /[^\s,]+)*)`)
	// parts are what stands for something else in a listed path, without its query.
	parts = strings.NewReplacer("…", ".*", `X\.Y\.Z`, "[^/]+", "<name>", "[^/]+", "<hash>", "[^/]+")
)

// Routes fails the test unless a package's routes are those that the doc comment in one of its files lists,
// as in "GET, POST /name/<hash>, /other/…   what it does". A route for HEAD alone is not judged.
func Routes(tb testing.TB, file string, routes []web.Route) {
	tb.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // the test's own
	if err != nil {
		tb.Fatal(err)
	}
	lists := map[string]*regexp.Regexp{}
	for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
		for method := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r == ' ' || r == ',' }) {
			for path := range strings.SplitSeq(m[2], ", ") {
				path, _, _ = strings.Cut(path, "?")
				lists[method+" "+path] = regexp.MustCompile(
					"^" + method + " " + parts.Replace(regexp.QuoteMeta(path)) + "$")
			}
		}
	}
	isRoute := map[string]bool{}
	for _, r := range routes {
		route, known := r.Method+" "+r.Path, r.Method == http.MethodHead
		for line, form := range lists {
			if form.MatchString(route) {
				known, isRoute[line] = true, true
			}
		}
		if !known {
			tb.Errorf("%s is a route that %s does not list", route, file)
		}
	}
	for line := range lists {
		if !isRoute[line] && !strings.HasPrefix(line, http.MethodHead+" ") { // which comes with GET
			tb.Errorf("%s lists %s, which is no route", file, line)
		}
	}
}
