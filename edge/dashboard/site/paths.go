package site

import (
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge"
)

// The paths of pages that lead to each other, below the base URL. Those below them are their packages' own.
const (
	PathRoot       = "/dashboard"
	PathLogin      = "/dashboard/login"
	PathInvite     = "/dashboard/invite"
	PathNewAccount = "/dashboard/new-account"

	PathSessions   = "/dashboard/sessions"
	PathKeys       = "/dashboard/keys"
	PathSigning    = "/dashboard/signing"
	PathUsage      = "/dashboard/usage"
	PathQuickstart = "/dashboard/quickstart"
	PathMembers    = "/dashboard/members"
	PathAudit      = "/dashboard/audit"

	PathOperator         = "/dashboard/operator"
	PathOperatorAccounts = "/dashboard/operator/accounts"
	PathOperatorHosts    = "/dashboard/operator/hosts"
	PathUndelivered      = "/dashboard/operator/undelivered"
	PathOperatorAudit    = "/dashboard/operator/audit"

	pathAssets = "/assets/"
)

// Get returns a route of the dashboard. HEAD comes with GET.
func Get(path string, handler http.Handler) edge.Route {
	return edge.Route{Method: http.MethodGet, Path: path, Name: RouteName(path), Handler: handler}
}

// Post returns a route of the dashboard.
func Post(path string, handler http.Handler) edge.Route {
	return edge.Route{Method: http.MethodPost, Path: path, Name: RouteName(path), Handler: handler}
}

// Routes are those of the assets.
func (s *Site) Routes() []edge.Route {
	var routes []edge.Route
	for _, a := range s.templates.assets() {
		routes = append(routes, edge.Route{
			Method: http.MethodGet, Path: pathAssets + a.Name, Name: "dashboard_asset", Handler: a,
		})
	}
	return routes
}

// RouteName returns the name of a path's route in logs and metrics.
func RouteName(path string) string {
	var words []string
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if !strings.HasPrefix(part, "{") {
			words = append(words, strings.ReplaceAll(part, "-", "_"))
		} else if len(words) > 0 && part != "{network}" {
			words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], "s")
		}
	}
	return strings.Join(words, "_")
}

// PathOf fills the one name in a path.
func PathOf(path, value string) string {
	from, rest, _ := strings.Cut(path, "{")
	_, rest, _ = strings.Cut(rest, "}")
	return from + value + rest
}

// SafeNext returns where the browser may go after a login: a page of the dashboard, and nowhere else. What is
// no such page becomes the dashboard itself.
func SafeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" ||
		strings.ContainsAny(next, "\\\r\n\t") || len(next) > maxNextBytes {
		return PathRoot
	}
	if u.Path != PathRoot && !strings.HasPrefix(u.Path, PathRoot+"/") || strings.Contains(u.Path, "..") ||
		strings.HasPrefix(u.Path, PathLogin) {
		return PathRoot
	}
	return next
}

// maxNextBytes leaves room in the attempt's cookie.
const maxNextBytes = 512
