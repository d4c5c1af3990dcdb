package urlpolicy

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxURLBytes is the length of the longest callback URL. Receivers and proxies are known to take 2,048 bytes
// everywhere.
const MaxURLBytes = 2048

const (
	scheme      = "https"
	defaultPort = 443
	example     = "https://bot.example.com/verified"
)

// URL is a callback URL that was parsed and checked. The zero value is no URL; only Parse makes one.
type URL struct {
	raw    string
	host   string
	port   uint16
	addr   netip.Addr // valid if the host is an address literal
	target string
}

// String returns the URL exactly as it was given to Parse. Its query may carry the integrator's secrets: for
// logs there is HostPort.
func (u URL) String() string { return u.raw }

// Host returns the name in lower case without a final dot, or the address in its canonical form without
// brackets.
func (u URL) Host() string { return u.host }

// Addr returns the address if the host is a literal; otherwise it is not valid.
func (u URL) Addr() netip.Addr { return u.addr }

// Port returns the port, 443 if the URL names none.
func (u URL) Port() uint16 { return u.port }

// HostPort returns host and port as net.JoinHostPort does. Two URLs with the same HostPort have the same
// destination.
func (u URL) HostPort() string { return net.JoinHostPort(u.host, strconv.Itoa(int(u.port))) }

// HostHeader returns the value of the Host field (RFC 9110 §7.2): no port if it is 443, brackets around IPv6.
func (u URL) HostHeader() string {
	if u.port != defaultPort {
		return u.HostPort()
	}
	if u.addr.Is6() {
		return "[" + u.host + "]"
	}
	return u.host
}

// RequestURI returns the request target in origin-form (RFC 9112 §3.2.1): path and query as given, "/" for
// an empty path.
func (u URL) RequestURI() string { return u.target }

// Parse checks raw against the rules of this package and the policy. The error is a *Fault.
//
// Decisions where the RFCs leave room: the scheme and the host may be written in capitals; a final dot of a
// name is dropped; an empty port ("https://host:/") and leading zeros in a port are refused; underscores in
// names are accepted, since DNS carries them and wildcard certificates match them; square brackets in path
// and query are accepted, since receivers' frameworks write them there.
func (p *Policy) Parse(raw string) (URL, error) {
	if err := checkBytes(raw); err != nil {
		return URL{}, err
	}
	authority, target, err := split(raw)
	if err != nil {
		return URL{}, err
	}
	host, port, err := splitAuthority(authority)
	if err != nil {
		return URL{}, err
	}
	u := URL{raw: raw, target: target}
	if u.port, err = p.parsePort(port); err != nil {
		return URL{}, err
	}
	if u.host, u.addr, err = p.parseHost(host); err != nil {
		return URL{}, err
	}
	if !agrees(raw, host, target) {
		return URL{}, fault(CodeSyntax, "not a URL that every program reads alike; give one such as %s",
			example)
	}
	return u, nil
}

// checkBytes bounds the length and refuses every byte that RFC 3986 §2 keeps out of URLs. Among them are
// space, tab, newline and backslash, which other parsers repair, each in its own way.
func checkBytes(raw string) error {
	if raw == "" {
		return fault(CodeLength, "empty; give an absolute https URL such as %s", example)
	}
	if len(raw) > MaxURLBytes {
		return fault(CodeLength, "%d bytes long; at most %d are allowed", len(raw), MaxURLBytes)
	}
	for i := range len(raw) {
		switch b := raw[i]; {
		case b >= 0x80:
			return fault(CodeCharacters,
				"byte %d is not ASCII; write the host in Punycode (xn--…) and percent-encode the rest", i+1)
		case b <= ' ' || b == 0x7f:
			return fault(CodeCharacters,
				"byte %d is a space or control character; remove or percent-encode it", i+1)
		case strings.IndexByte("\"<>\\^`{|}", b) >= 0:
			return fault(CodeCharacters, "byte %d is %q, which has no place in a URL; percent-encode it", i+1,
				b)
		case b == '%' && !isEscape(raw[i:]):
			return fault(CodeSyntax,
				"byte %d is a %% without two hexadecimal digits; a plain %% is written %%25", i+1)
		}
	}
	return nil
}

// split splits the URL into authority and request target.
func split(raw string) (authority, target string, err error) {
	name, rest, ok := strings.Cut(raw, ":")
	if !ok || !strings.EqualFold(name, scheme) {
		return "", "", fault(CodeScheme, "not an absolute https URL; it starts with https:// as in %s",
			example)
	}
	rest, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return "", "", fault(CodeSyntax, "two slashes and a host follow https: as in %s", example)
	}
	if strings.Contains(rest, "#") {
		return "", "", fault(CodeFragment,
			"a fragment (#…) never reaches a server; remove it, or write a plain # as %%23")
	}
	authority = rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, target = rest[:i], rest[i:]
	}
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	return authority, target, nil
}

// agrees asks net/url, the parser of most Go programs, for its reading. It must be the same as ours, so that
// no second reading of a URL leads elsewhere. Nothing is known to get past the stricter checks before it; the
// fuzz test compares the two.
func agrees(raw, host, target string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == scheme && u.User == nil && u.Opaque == "" && u.Fragment == "" &&
		u.Hostname() == strings.Trim(host, "[]") && u.RequestURI() == target
}

func isEscape(s string) bool { return len(s) >= 3 && isHex(s[1]) && isHex(s[2]) }

func isHex(b byte) bool { return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// anywhere lets every address through: an operator names what it reads, and another policy judges it when it
// is dialled.
var anywhere = NewPolicy([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	nil)

// ParseNamed is Policy.Parse for a URL that an operator names where no policy is known: the policy that binds
// is asked when the URL is dialled. The error is a *Fault.
func ParseNamed(raw string) (URL, error) { return anywhere.Parse(raw) }

// Destination reads a receiver host as an operator names it, host or host:port, and returns it as HostPort
// does; the port is 443 if none is named. The error is a *Fault.
func Destination(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, "/?#") || checkBytes(s) != nil ||
		len(s) > maxNameBytes+len(":65535") {
		return "", fault(CodeHost, "%q is not a host; write host or host:port, as in bot.example.com:8443", s)
	}
	u, err := anywhere.Parse(scheme + "://" + s + "/")
	if err != nil {
		return "", err
	}
	return u.HostPort(), nil
}
