package flags

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Unknown is a variable with verifyd's prefix that nothing reads.
type Unknown struct {
	Name    string
	Nearest string // the variable that was probably meant; empty if none is near
}

// othersVariables are for programs around a service: docker-compose.yml and the receivers of the guides. They
// may be in the same file of variables as its settings.
var othersVariables = []string{
	"VERIFYD_VERSION", "VERIFYD_ENV_FILE", "VERIFYD_IMAGES_CACHE", "VERIFYD_HOST", "VERIFYD_TLS",
	"VERIFYD_HTTP_PORT", "VERIFYD_HTTPS_PORT",
	"VERIFYD_FRONT_SUBNET", "VERIFYD_OUT_SUBNET", "VERIFYD_GRAFANA_PORT", "VERIFYD_GRAFANA_PASSWORD",
	"VERIFYD_SIGNING_SECRET",
}

// testVariables is the prefix of the variables of this project's tests.
const testVariables = variablePrefix + "TEST_"

// serviceHost is the suffix of the first of the variables that Kubernetes sets in each pod for a Service,
// such as one whose name is verifyd.
const serviceHost = "_SERVICE_HOST"

// madeForServices returns the prefix of those variables, for each Service.
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

// Unknowns returns the variables in an environment that nothing reads. Their values, which may be secrets,
// are not used.
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

// nearest returns the name that was probably meant: one with all words of the given name, or else the one
// with the fewest different letters, up to a third of them. It is empty if none is near. Upper and lower
// case, - and _, and verifyd's prefix make no difference.
func nearest(name string, among []string) string {
	name = bare(name)
	best, fewest := "", len(name)/3+1
	for _, candidate := range among {
		d := distance(name, bare(candidate))
		if hasWords(bare(candidate), name) {
			d = min(d, 1)
		}
		if d < fewest {
			best, fewest = candidate, d
		}
	}
	return best
}

func bare(name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(strings.ToUpper(name), "-", "_"), variablePrefix)
}

// hasWords reports whether a name contains all words of another.
func hasWords(name, other string) bool {
	words := strings.Split(name, "_")
	for word := range strings.SplitSeq(other, "_") {
		if !slices.Contains(words, word) {
			return false
		}
	}
	return true
}

// distance returns how many letters have to be inserted, removed or changed to turn one text into another
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // in the row above, one to the left
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
