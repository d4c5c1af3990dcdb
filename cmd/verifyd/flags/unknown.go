package flags

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Unknown is a variable that begins as verifyd's do and that nothing reads.
type Unknown struct {
	Name    string
	Nearest string // what it was probably to be; empty: nothing is near
}

// othersVariables are for what stands beside a service: docker-compose.yml and the receivers of the
// guides. They may lie in the same file of variables as its settings.
var othersVariables = []string{
	"VERIFYD_VERSION", "VERIFYD_ENV_FILE", "VERIFYD_IMAGES_CACHE", "VERIFYD_HOST", "VERIFYD_TLS",
	"VERIFYD_HTTP_PORT", "VERIFYD_HTTPS_PORT",
	"VERIFYD_FRONT_SUBNET", "VERIFYD_OUT_SUBNET", "VERIFYD_GRAFANA_PORT", "VERIFYD_GRAFANA_PASSWORD",
	"VERIFYD_SIGNING_SECRET",
}

// testVariables begin those of this project's tests.
const testVariables = variablePrefix + "TEST_"

// serviceHost ends the first of the variables that Kubernetes sets in each pod for a Service, such as one
// whose name is verifyd.
const serviceHost = "_SERVICE_HOST"

// madeForServices returns what those variables begin with, for each Service.
func madeForServices(environ []string) (begins []string) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if service, ok := strings.CutSuffix(name, serviceHost); ok {
			begins = append(begins, service+"_SERVICE_", service+"_PORT")
		}
	}
	return begins
}

// knownVariables are those that a command reads.
func knownVariables(app *kong.Application) (names []string) {
	for flag := range AllFlags(app) {
		names = append(names, flag.Envs...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Unknowns returns the variables in an environment that nothing knows. Their values, which may be secrets,
// are not looked at.
func Unknowns(app *kong.Application, environ []string) (found []Unknown) {
	known := knownVariables(app)
	made := append(madeForServices(environ), testVariables)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		isMade := slices.ContainsFunc(made, func(begin string) bool { return strings.HasPrefix(name, begin) })
		isKnown := slices.Contains(known, name) || slices.Contains(othersVariables, name)
		if strings.HasPrefix(name, variablePrefix) && !isMade && !isKnown {
			found = append(found, Unknown{name, nearest(name, known)})
		}
	}
	slices.SortFunc(found, func(a, b Unknown) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// nearest returns the name that another one was probably to be: one with all of its words, or else the one
// with the fewest letters that differ, up to a third of them. Empty: none is near. Upper and lower case,
// - and _, and verifyd's prefix make no difference.
func nearest(name string, among []string) string {
	name = bare(name)
	best, least := "", len(name)/3+1
	for _, candidate := range among {
		d := distance(name, bare(candidate))
		if hasWords(bare(candidate), name) {
			d = min(d, 1)
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
}

func bare(name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(strings.ToUpper(name), "-", "_"), variablePrefix)
}

// hasWords reports whether a name has all the words of another.
func hasWords(name, other string) bool {
	words := strings.Split(name, "_")
	for word := range strings.SplitSeq(other, "_") {
		if !slices.Contains(words, word) {
			return false
		}
	}
	return true
}

// distance is how many letters have to be put in, taken out or changed to make one text of another
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
