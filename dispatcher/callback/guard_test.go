package callback_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
)

// leastGuarded is the documented number of hostile URLs.
const leastGuarded = 150

// guarded is one hostile URL. PORT is replaced by the port of the traps.
type guarded struct {
	url string
	// answers holds what the URL's name resolves to at its first, second and each later question, in words
	// of addresses.
	answers []string
	dials   int // 1 when zero
}

// hostileLiterals name this machine, a private network or a cloud's inside, in every notation that a program
// reads as an address, and hide hosts in parts of a URL that a program reads as the host.
var hostileLiterals = []string{
	// dotted decimal
	"https://127.0.0.1:PORT/", "https://127.0.0.3:PORT/", "https://127.255.255.254:PORT/",
	"https://0.0.0.0:PORT/", "https://10.0.0.1:PORT/",
	"https://172.16.0.1:PORT/", "https://192.168.0.1:PORT/", "https://169.254.169.254/latest/meta-data/",
	"https://100.100.100.200/",
	"https://168.63.129.16/", "https://192.0.0.192/", "https://255.255.255.255:PORT/",
	"https://224.0.0.1:PORT/", "https://240.0.0.1:PORT/",
	"https://100.64.0.1:PORT/", "https://198.18.0.1:PORT/", "https://192.0.2.1:PORT/",
	"https://198.51.100.1:PORT/", "https://203.0.113.1:PORT/",
	// one number, octal, hexadecimal, short and mixed (inet_aton)
	"https://2130706433:PORT/", "https://017700000001:PORT/", "https://0x7f000001:PORT/",
	"https://0X7F000001:PORT/", "https://0x7F.1:PORT/",
	"https://127.1:PORT/", "https://127.0.1:PORT/", "https://0:PORT/", "https://0.0:PORT/",
	"https://0x0:PORT/", "https://00:PORT/",
	"https://0177.0.0.1:PORT/", "https://0177.0.0.01:PORT/", "https://00000177.0.0.1:PORT/",
	"https://0x7f.0.0.1:PORT/",
	"https://0x7f.0x0.0x0.0x1:PORT/", "https://0x7f.0.0x0.01:PORT/", "https://127.0.0.01:PORT/",
	"https://127.00.00.01:PORT/",
	"https://127.000.000.001:PORT/", "https://127.0.0.0x1:PORT/", "https://127.0x1:PORT/",
	"https://127.65530:PORT/", "https://0127.1:PORT/",
	"https://4294967295:PORT/", "https://4294967297:PORT/", "https://6425673729:PORT/",
	"https://2852039166:PORT/", "https://0xa9fea9fe/",
	"https://0251.0376.0251.0376/", "https://0xa9.0xfe.0xa9.0xfe/", "https://169.254.43518/",
	"https://169.16689662/", "https://3232235521:PORT/",
	"https://167772161:PORT/", "https://0xa000001:PORT/", "https://012.0.0.1:PORT/",
	"https://383.0.0.1:PORT/", "https://127.0.0.257:PORT/",
	"https://127.0.0.1.:PORT/", "https://127.1.:PORT/", "https://0x7f000001.:PORT/",
	"https://127.0.0.1..:PORT/", "https://.127.0.0.1:PORT/",
	"https://127..1:PORT/", "https://-1:PORT/", "https://127.0.0.-1:PORT/", "https://+127.0.0.1:PORT/",
	"https://1e9:PORT/",
	// digits that are none, and dots that are none
	"https://①②⑦.⓪.⓪.①:PORT/", "https://１２７.０.０.１:PORT/", "https://127。0。0。1:PORT/",
	"https://127．0．0．1:PORT/",
	"https://127｡0｡0｡1:PORT/", "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/", "https://loc\u00adalhost:PORT/",
	"https://127.0.0.1\u200b:PORT/", "https://١٢٧.٠.٠.١:PORT/",
	// percent-encoding
	"https://127%2e0%2e0%2e1:PORT/", "https://%31%32%37.0.0.1:PORT/", "https://%6c%6fcalhost:PORT/",
	"https://127.0.0.1%00.hooks.example:PORT/",
	"https://127.0.0.1%2f.hooks.example:PORT/", "https://%5b::1%5d:PORT/",
	"https://127.0.0.1%23.hooks.example:PORT/",
	// IPv6
	"https://[::1]:PORT/", "https://[::]:PORT/", "https://[0:0:0:0:0:0:0:1]:PORT/",
	"https://[0000:0000:0000:0000:0000:0000:0000:0001]:PORT/",
	"https://[::0001]:PORT/", "https://[0::1]:PORT/", "https://[::ffff:127.0.0.1]:PORT/",
	"https://[::ffff:7f00:1]:PORT/",
	"https://[::FFFF:7F00:0001]:PORT/", "https://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
	"https://[::ffff:0:127.0.0.1]:PORT/",
	"https://[::127.0.0.1]:PORT/", "https://[::7f00:1]:PORT/", "https://[::ffff:10.0.0.1]:PORT/",
	"https://[::ffff:169.254.169.254]/",
	"https://[::ffff:0.0.0.0]:PORT/", "https://[64:ff9b::127.0.0.1]:PORT/", "https://[64:ff9b::7f00:1]:PORT/",
	"https://[64:ff9b:1::7f00:1]:PORT/",
	"https://[2002:7f00:1::]:PORT/", "https://[2002:a9fe:a9fe::]/", "https://[2001:0:7f00:1::]:PORT/",
	"https://[2001:0:0:0:0:0:80ff:fffe]:PORT/",
	"https://[2606:4700::5efe:127.0.0.1]:PORT/", "https://[2606:4700::200:5efe:7f00:1]:PORT/",
	"https://[fe80::1]:PORT/", "https://[fe80::5efe:7f00:1]:PORT/",
	"https://[fe80::1%25lo]:PORT/", "https://[fe80::1%lo]:PORT/", "https://[::1%25lo]:PORT/",
	"https://[fec0::1]:PORT/", "https://[fc00::1]:PORT/",
	"https://[fd00:ec2::254]/", "https://[ff02::1]:PORT/", "https://[100::1]:PORT/",
	"https://[2001:db8::1]:PORT/", "https://[3fff::1]:PORT/",
	"https://[5f00::1]:PORT/", "https://::1:PORT/", "https://[::1:PORT/", "https://[127.0.0.1]:PORT/",
	"https://[[::1]]:PORT/", "https://[::1].:PORT/",
	"https://[v1.127.0.0.1]:PORT/", "https://[::ffff:0x7f000001]:PORT/", "https://[::ffff:0177.0.0.1]:PORT/",
	"https://[]:PORT/",
	// names of this machine
	"https://localhost:PORT/", "https://LOCALHOST:PORT/", "https://localhost.:PORT/",
	"https://a.localhost:PORT/", "https://a.b.LocalHost.:PORT/",
	// hosts hidden for a careless parser
	"https://hooks.example@127.0.0.1:PORT/", "https://hooks.example:443@127.0.0.1:PORT/",
	"https://127.0.0.1:PORT@hooks.example/", "https://@127.0.0.1:PORT/",
	"https://hooks.example\\@127.0.0.1:PORT/", "https:\\\\127.0.0.1:PORT\\", "https:/\\127.0.0.1:PORT/",
	"https:///127.0.0.1:PORT/", "https:127.0.0.1:PORT",
	"https:/127.0.0.1:PORT/", "//127.0.0.1:PORT/", "http://127.0.0.1:PORT/",
	"https://hooks.example#@127.0.0.1:PORT/", "https://127.0.0.1:PORT#.hooks.example/",
	"https://127.0.0.1 .hooks.example:PORT/", "https://127.0.0.1\t:PORT/", "https://127.0.0.1\r\n:PORT/",
	" https://127.0.0.1:PORT/", "https://127.0.0.1;hooks.example:PORT/",
	"https://127.0.0.1,hooks.example:PORT/", "https://127.0.0.1&@hooks.example:PORT/",
	"https://127.0.0.1:PORT:443/", "https://127.0.0.1:+PORT/", "https://127.0.0.1:0PORT/",
	"https://*.0.0.1:PORT/", "https://127.0.0.*:PORT/", "https://0x7f.0.0.1:PORT:PORT/",
	"file://127.0.0.1:PORT/", "gopher://127.0.0.1:PORT/_POST", "ftp://127.0.0.1:PORT/",
}

// forbidden holds the ranges of IANA's special-purpose registries, multicast, and what embeds IPv4
// addresses.
var forbidden = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/31", "127.0.0.3/32", "127.255.255.254/31",
	"169.254.0.0/16", "169.254.169.254/32",
	"172.16.0.0/12", "192.0.0.0/24", "192.0.0.170/31", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
	"192.88.99.0/24", "192.168.0.0/16",
	"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "233.252.0.0/24",
	"240.0.0.0/4",
	"255.255.255.255/32", "168.63.129.16/32", "100.100.100.200/32",
	"::/128", "::1/128", "::ffff:127.0.0.1/128", "::ffff:10.0.0.0/104", "::ffff:169.254.169.254/128", "::/96",
	"::ffff:0:0:0/96", "64:ff9b::/96",
	"64:ff9b::7f00:1/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32",
	"2001:2::/48", "2001:3::/32", "2001:4:112::/48",
	"2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "2002:7f00:1::/48",
	"2620:4f:8000::/48", "3fff::/20", "5f00::/16",
	"fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "8000::/1",
	"2606:4700::5efe:7f00:1/128",
}

// guardedURLs makes the table: the literals, names that resolve into each forbidden range, names that
// resolve to the public address first and into the range from then on, and names that resolve to both at
// once.
func guardedURLs() []guarded {
	const public = "127.0.0.2"
	var rows []guarded
	for _, url := range hostileLiterals {
		rows = append(rows, guarded{url: url})
	}
	name := func(kind, i int) string { return fmt.Sprintf("https://n%d-%d.hooks.example:PORT/", kind, i) }
	for i, text := range forbidden {
		prefix := netip.MustParsePrefix(text)
		first, last := prefix.Masked().Addr().String(), lastOf(prefix).String()
		rows = append(rows,
			guarded{url: name(1, i), answers: []string{first}},
			guarded{url: name(2, i), answers: []string{last}},
			guarded{url: name(3, i), answers: []string{public, last}, dials: 3},
			guarded{
				url: name(4, i), answers: []string{public + " " + first, first + " " + public, first},
				dials: 4,
			},
			guarded{url: name(5, i), answers: []string{first + " 127.0.0.1 ::1 " + last}},
		)
	}
	// telling names, which are still judged by what they resolve to
	for i, url := range []string{
		"https://127.0.0.1.nip.example:PORT/", "https://0x7f000001.example:PORT/",
		"https://localtest.example:PORT/", "https://metadata:PORT/",
		"https://kubernetes.default.svc:PORT/", "https://metadata.google.internal/",
		"https://xn--lcalhost-c4a.example:PORT/", "https://127-0-0-1.example.:PORT/",
	} {
		rows = append(rows, guarded{
			url: url, answers: []string{
				[]string{"127.0.0.1", "127.0.0.1 ::1", "::ffff:127.0.0.1", "169.254.169.254"}[i%4],
			},
		})
	}
	return rows
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

// zone returns a name server for all the rows' names. A name that is in no row resolves to the trap.
func zone(t *testing.T, rows []guarded) *nameServer {
	t.Helper()
	answers := map[string][]string{}
	for _, row := range rows {
		if row.answers != nil {
			host, _, _ := strings.Cut(strings.TrimPrefix(row.url, "https://"), "/")
			host, _, _ = strings.Cut(host, ":")
			answers[strings.TrimSuffix(host, ".")+"."] = row.answers
		}
	}
	return serveNames(t, func(name string, n int) ([]netip.Addr, int) {
		words, ok := answers[strings.ToLower(name)]
		if !ok {
			return parseAddrs("127.0.0.1 ::1"), 0
		}
		return parseAddrs(words[min(n, len(words))-1]), 0
	})
}

func parseAddrs(words string) []netip.Addr {
	var ips []netip.Addr
	for word := range strings.FieldsSeq(words) {
		ips = append(ips, netip.MustParseAddr(word))
	}
	return ips
}

// connections records the addresses that sockets were allowed to connect to.
type connections struct {
	mu   sync.Mutex
	seen []string
}

func (c *connections) add(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, address)
}

// take returns what was recorded since the last take.
func (c *connections) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// TestGuard offers every hostile URL to the policy and, if it is accepted, dials it as a delivery would,
// through a real name server. Connections are counted twice: at the sockets, whatever the address, and at
// traps on loopback.
func TestGuard(t *testing.T) {
	rows := guardedURLs()
	distinct := map[string]bool{}
	for _, row := range rows {
		distinct[row.url] = true
	}
	if len(distinct) < leastGuarded {
		t.Fatalf("%d hostile URLs; %d are promised", len(distinct), leastGuarded)
	}
	conf := &tls.Config{
		Certificates: []tls.Certificate{
			mustIssue(t, localca.Certificate{Hosts: []string{"*.hooks.example"}}),
		},
	}
	public, port := receivePublic(t, conf)
	traps := []*receiver{receiveOn(t, "127.0.0.1:"+port, conf, okAnswer)}
	if l, err := net.Listen("tcp", "[::1]:"+port); err == nil { // if the machine has IPv6
		_ = l.Close()
		traps = append(traps, receiveOn(t, "[::1]:"+port, conf, okAnswer))
	}
	allowed, wrong := 0, 0
	for name, policy := range map[string]*urlpolicy.Policy{
		public.listener.Addr().String():  onlySecond, // plays the public internet
		"nowhere: all of it is loopback": urlpolicy.NewPolicy(nil, nil),
	} {
		s := zone(t, rows)
		client := s.client(policy, 10*time.Second)
		var made connections
		callback.Watch(client, made.add)
		for _, row := range rows {
			refusedAtInit := guardOnce(t, client, policy, row, port)
			for _, address := range made.take() {
				if allowed++; address == name {
					continue
				}
				t.Errorf("%s: a socket was let through to %s", row.url, address)
				if wrong++; wrong == 10 {
					t.FailNow() // without a guard, the rest would be dialled for minutes
				}
			}
			if row.answers == nil && !refusedAtInit && policy != onlySecond {
				t.Errorf("%s: accepted as a callback URL", row.url)
			}
		}
	}
	public.stop()
	for _, r := range traps {
		if r.stop(); r.conns != 0 {
			t.Errorf("%d connections to %s, outside policy", r.conns, r.listener.Addr())
		}
	}
	if public.conns == 0 || public.conns != allowed {
		t.Errorf("%d connections to the permitted address, %d sockets let through: the count is not to "+
			"be trusted", public.conns, allowed)
	}
	t.Logf("%d hostile URLs under 2 policies: %d connections, all of them to the permitted address",
		len(distinct), public.conns)
}

// guardOnce tests one row as far as it gets.
func guardOnce(t *testing.T, c *callback.Client, policy *urlpolicy.Policy, row guarded,
	port string) (refused bool) {
	t.Helper()
	u, err := policy.Parse(strings.ReplaceAll(row.url, "PORT", port))
	if err != nil {
		var fault *urlpolicy.Fault
		if !errors.As(err, &fault) || row.answers != nil && policy == onlySecond {
			t.Errorf("%s: %v", row.url, err)
		}
		return true
	}
	for range max(row.dials, 1) {
		cn, err := c.Dial(t.Context(), u)
		if err == nil {
			_ = cn.Close()
			continue
		}
		var notSent *callback.NotSent
		if !errors.As(err, &notSent) || notSent.Class != failure.RefusedAddress {
			t.Errorf("%s: %v; want a refused address", row.url, err)
		}
	}
	return false
}
