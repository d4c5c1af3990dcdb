package urlpolicy

import "fmt"

// The codes of a Fault. They are part of the public interface and never change their meaning.
const (
	CodeLength     = "callback_url_length"     // longer than MaxURLBytes, or empty
	CodeCharacters = "callback_url_characters" // a byte that RFC 3986 does not allow in a URL
	CodeScheme     = "callback_url_scheme"     // not an absolute https URL
	CodeSyntax     = "callback_url_syntax"     // not the shape of a URL, or a broken percent-encoding
	CodeUserinfo   = "callback_url_userinfo"   // a user name or password before the host
	CodeFragment   = "callback_url_fragment"   // a fragment, even an empty one
	CodeHost       = "callback_url_host"       // not a public host name nor a canonical address literal
	CodeAddress    = "callback_url_address"    // an address literal that callbacks may not reach
	CodePort       = "callback_url_port"       // not a port, or one that callbacks may not reach
)

// Fault reports why a callback URL was refused. It never carries the URL's userinfo, path or query, so it may
// be shown and logged.
type Fault struct {
	Code   string // one of the Code… constants
	Detail string // what is wrong and what is valid: one sentence in lower case, without a full stop
}

// Error returns code and detail.
func (f *Fault) Error() string { return f.Code + ": " + f.Detail }

func fault(code, format string, args ...any) error {
	return &Fault{Code: code, Detail: fmt.Sprintf(format, args...)}
}
