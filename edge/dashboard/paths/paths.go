// Package paths has the paths of the dashboard's pages, and the names of their routes.
package paths

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge/web"
)

// The paths of pages that link to each other, below the base URL. Those below them are in their packages.
const (
	Root       = "/dashboard"
	Login      = "/dashboard/login"
	Again      = "/dashboard/sign-in-again"
	Invite     = "/dashboard/invite"
	NewAccount = "/dashboard/new-account"

	Sessions     = "/dashboard/sessions"
	Keys         = "/dashboard/keys"
	Signing      = "/dashboard/signing"
	Callbacks    = "/dashboard/callbacks"
	CallbackTest = "/dashboard/callbacks/test"
	Usage        = "/dashboard/usage"
	Notices      = "/dashboard/notices"
	Quickstart   = "/dashboard/quickstart"
	Members      = "/dashboard/members"
	Audit        = "/dashboard/audit"
	Settings     = "/dashboard/settings"

	Operator         = "/dashboard/operator"
	OperatorAccounts = "/dashboard/operator/accounts"
	OperatorAccount  = "/dashboard/operator/accounts/{account}"
	OperatorSession  = "/dashboard/operator/sessions/{session}"
	OperatorHosts    = "/dashboard/operator/hosts"
	Undelivered      = "/dashboard/operator/undelivered"
	OperatorAudit    = "/dashboard/operator/audit"
)

// Get returns a route of the dashboard. It includes HEAD.
func Get(path string, handler http.Handler) web.Route {
	return web.Route{Method: http.MethodGet, Path: path, Name: RouteName(path), Handler: handler}
}

// Post returns a route of the dashboard.
func Post(path string, handler http.Handler) web.Route {
	return web.Route{Method: http.MethodPost, Path: path, Name: RouteName(path), Handler: handler}
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

// Of fills the one name in a path.
func Of(path, value string) string {
	from, rest, _ := strings.Cut(path, "{")
	_, rest, _ = strings.Cut(rest, "}")
	return from + value + rest
}

// SafeNext returns where the browser may go after a login: a page of the dashboard, and nowhere else.
// Anything else becomes the dashboard itself.
func SafeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" ||
		strings.ContainsAny(next, "\\\r\n\t") || len(next) > maxNextBytes {
		return Root
	}
	if u.Path != Root && !strings.HasPrefix(u.Path, Root+"/") || strings.Contains(u.Path, "..") ||
		strings.HasPrefix(u.Path, Login) {
		return Root
	}
	return next
}

// maxNextBytes leaves room in the attempt's cookie.
const maxNextBytes = 512

// documents are the sections of the documentation that answer questions on a page, by subject.
var documents = map[string]string{
	"starting":     "integrating#start-a-session",
	"limits":       "integrating#start-a-session",
	"callbacks":    "integrating#the-callback",
	"receivers":    "integrating#other-languages",
	"trying":       "integrating#try-a-receiver-before-it-goes-live",
	"listening":    "integrating#develop-without-a-public-address",
	"test keys":    "integrating#test-keys",
	"sign-in page": "integrating#what-your-users-see",
	"roles":        "integrating#who-belongs-to-an-account",
	"usage":        "integrating#usage",
	"notices":      "integrating#notices",
	"drop-off":     "integrating#where-users-drop-off",
	"deliveries":   "guarantees#what-verifyd-promises",
	"operators":    "operating#operators-in-the-dashboard",
	"accounts":     "operating#accounts",
	"alerts":       "operating#what-each-alert-means",
	"interface":    "api",
}

// Document returns the path of the documentation of a subject.
func Document(about string) (string, error) {
	if to := documents[about]; to != "" {
		return "/docs/" + to, nil
	}
	return "", fmt.Errorf("the documentation has no place about %q", about)
}

// Documents returns the subjects that Document has.
func Documents() iter.Seq[string] { return maps.Keys(documents) }
