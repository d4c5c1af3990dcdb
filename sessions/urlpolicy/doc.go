// Package urlpolicy decides where a callback may go. The edge asks it when a session starts, the dispatcher
// when it dials, so that the checked address is the one that is dialled.
//
// The law:
//
//  1. A callback URL is an absolute https URL (contract §2.2) of at most MaxURLBytes bytes of ASCII, with a
//     host and without userinfo or fragment. It is parsed once, strictly, and nothing in it is repaired:
//     what RFC 3986 does not allow is refused, and the request target that goes on the wire is the one that
//     was given, byte for byte.
//  2. The host is a public name or the one canonical spelling of a public address. A spelling that another
//     program might read as an address (2130706433, 0x7f000001, 0177.0.0.1, 127.1) is refused, never
//     interpreted.
//  3. A name proves nothing. Policy.Control judges the address that is dialled, after DNS, each time. Parse
//     refuses early only a host that can never be reached.
//  4. The policy names the addresses that are refused: every range of IANA's special-purpose registries,
//     multicast, everything outside IPv6 global unicast, every IPv6 form that embeds an IPv4 address, and the
//     cloud address in public space. An operator's allow-list overrides it; nothing else does. What the
//     operator refuses in addition, networks and hosts, overrides that list.
//
// No other package of verifyd imports code.dny.dev/ssrf.
package urlpolicy
