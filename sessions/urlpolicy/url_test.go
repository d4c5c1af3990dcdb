package urlpolicy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"verifyd/sessions/urlpolicy"
)

var (
	public   = urlpolicy.NewPolicy(nil, nil)
	loopback = urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
)

func TestParseAccepts(t *testing.T) {
	longName := label63 + "." + label63 + "." + label63 + "." + strings.Repeat("b", 61)
	atLimit := "https://h.example/" + strings.Repeat("p", urlpolicy.MaxURLBytes-len("https://h.example/"))
	for _, row := range []struct{ raw, host, hostPort, header, uri string }{
		{"https://bot.example.com/verified", "bot.example.com", "bot.example.com:443", "bot.example.com",
			"/verified"},
		{"https://bot.example.com", "bot.example.com", "bot.example.com:443", "bot.example.com", "/"},
		{"https://bot.example.com?a=1", "bot.example.com", "bot.example.com:443", "bot.example.com", "/?a=1"},
		{"https://bot.example.com/?", "bot.example.com", "bot.example.com:443", "bot.example.com", "/?"},
		{"HTTPS://Bot.Example.COM/A", "bot.example.com", "bot.example.com:443", "bot.example.com", "/A"},
		{"https://bot.example.com./a", "bot.example.com", "bot.example.com:443", "bot.example.com", "/a"},
		{"https://bot.example.com:443/", "bot.example.com", "bot.example.com:443", "bot.example.com", "/"},
		{"https://bot.example.com:8443/", "bot.example.com", "bot.example.com:8443", "bot.example.com:8443",
			"/"},
		{"https://bot.example.com:65535/", "bot.example.com", "bot.example.com:65535",
			"bot.example.com:65535", "/"},
		{"https://bot.example.com:1/", "bot.example.com", "bot.example.com:1", "bot.example.com:1", "/"},
		{"https://xn--bcher-kva.example/b%C3%BCcher", "xn--bcher-kva.example", "xn--bcher-kva.example:443",
			"xn--bcher-kva.example", "/b%C3%BCcher"},
		{"https://my_bot.example.com/", "my_bot.example.com", "my_bot.example.com:443", "my_bot.example.com",
			"/"},
		{"https://123.example.com/", "123.example.com", "123.example.com:443", "123.example.com", "/"},
		{"https://1.2.3.4.example/", "1.2.3.4.example", "1.2.3.4.example:443", "1.2.3.4.example", "/"},
		{"https://0xabc.example/", "0xabc.example", "0xabc.example:443", "0xabc.example", "/"},
		{"https://a.0xyz/", "a.0xyz", "a.0xyz:443", "a.0xyz", "/"},
		{"https://" + longName + "/", longName, longName + ":443", longName, "/"},
		{"https://8.8.8.8/x", "8.8.8.8", "8.8.8.8:443", "8.8.8.8", "/x"},
		{"https://[2606:4700:4700::1111]/x", "2606:4700:4700::1111", "[2606:4700:4700::1111]:443",
			"[2606:4700:4700::1111]", "/x"},
		{"https://[2606:4700:4700:0:0:0:0:1111]:8443/", "2606:4700:4700::1111", "[2606:4700:4700::1111]:8443",
			"[2606:4700:4700::1111]:8443", "/"},
		{"https://h.example//a//b/../c;d=e,f", "h.example", "h.example:443", "h.example",
			"//a//b/../c;d=e,f"},
		{"https://h.example/%41%2F%2e?q=%00&r[0]=/?:@!$'()*+,;=", "h.example", "h.example:443", "h.example",
			"/%41%2F%2e?q=%00&r[0]=/?:@!$'()*+,;="},
		{"https://h.example/a?b=https://user@evil.example/", "h.example", "h.example:443", "h.example",
			"/a?b=https://user@evil.example/"},
		{"https://h.example/~-._*", "h.example", "h.example:443", "h.example", "/~-._*"},
		{atLimit, "h.example", "h.example:443", "h.example", atLimit[len("https://h.example"):]},
	} {
		u, err := public.Parse(row.raw)
		if err != nil {
			t.Errorf("Parse(%q): %v", row.raw, err)
			continue
		}
		if u.String() != row.raw || u.Host() != row.host || u.HostPort() != row.hostPort ||
			u.HostHeader() != row.header || u.RequestURI() != row.uri {
			t.Errorf("Parse(%q) = host %q, key %q, Host field %q, target %q", row.raw, u.Host(), u.HostPort(),
				u.HostHeader(), u.RequestURI())
		}
	}
}

// label63 is the longest label.
var label63 = strings.Repeat("a", 63)

// refused holds what Parse must refuse, and with which code.
var refused = []struct{ raw, code string }{
	// length
	{"", urlpolicy.CodeLength},
	{"https://h.example/" + strings.Repeat("p", urlpolicy.MaxURLBytes), urlpolicy.CodeLength},
	// characters
	{" https://h.example/", urlpolicy.CodeCharacters},
	{"https://h.example/ ", urlpolicy.CodeCharacters},
	{"https://h.example/\n", urlpolicy.CodeCharacters},
	{"https://h.exa\tmple/", urlpolicy.CodeCharacters},
	{"https://h.example/\r\nHost: evil.example", urlpolicy.CodeCharacters},
	{"https://h.example/\x00", urlpolicy.CodeCharacters},
	{"https://h.example/\x7f", urlpolicy.CodeCharacters},
	{"https://h.example\\@evil.example/", urlpolicy.CodeCharacters},
	{`https:\\h.example\`, urlpolicy.CodeCharacters},
	{"https://bücher.example/", urlpolicy.CodeCharacters},
	{"https://①②⑦.⓪.⓪.①/", urlpolicy.CodeCharacters},
	{"https://127。0。0。1/", urlpolicy.CodeCharacters},
	{"https://h.example/ü", urlpolicy.CodeCharacters},
	{"https://h.example/\xff", urlpolicy.CodeCharacters},
	{"https://h.example/<script>", urlpolicy.CodeCharacters},
	{"https://h.example/?q={a|b}", urlpolicy.CodeCharacters},
	{"https://h.example/\"", urlpolicy.CodeCharacters},
	{"https://h.example/^`", urlpolicy.CodeCharacters},
	// scheme
	{"http://h.example/", urlpolicy.CodeScheme},
	{"h.example/verified", urlpolicy.CodeScheme},
	{"/verified", urlpolicy.CodeScheme},
	{"//h.example/", urlpolicy.CodeScheme},
	{"://h.example/", urlpolicy.CodeScheme},
	{"ftp://h.example/", urlpolicy.CodeScheme},
	{"httpss://h.example/", urlpolicy.CodeScheme},
	{"javascript:alert(1)", urlpolicy.CodeScheme},
	{"file:///etc/passwd", urlpolicy.CodeScheme},
	{"h.example:443", urlpolicy.CodeScheme},
	{"https", urlpolicy.CodeScheme},
	{"?https://h.example/", urlpolicy.CodeScheme},
	// syntax
	{"https:", urlpolicy.CodeSyntax},
	{"https:h.example", urlpolicy.CodeSyntax},
	{"https:/h.example/", urlpolicy.CodeSyntax},
	{"https://h.example/%", urlpolicy.CodeSyntax},
	{"https://h.example/%zz", urlpolicy.CodeSyntax},
	{"https://h.example/?q=%4", urlpolicy.CodeSyntax},
	// userinfo
	{"https://user@h.example/", urlpolicy.CodeUserinfo},
	{"https://user:secretword@h.example/", urlpolicy.CodeUserinfo},
	{"https://@h.example/", urlpolicy.CodeUserinfo},
	{"https://h.example@127.0.0.1/", urlpolicy.CodeUserinfo},
	{"https://h.example:443@127.0.0.1:80/", urlpolicy.CodeUserinfo},
	// fragment
	{"https://h.example/#", urlpolicy.CodeFragment},
	{"https://h.example/#top", urlpolicy.CodeFragment},
	{"https://h.example#@evil.example/", urlpolicy.CodeFragment},
	{"https://h.example/?a#b", urlpolicy.CodeFragment},
	// host
	{"https://", urlpolicy.CodeHost},
	{"https:///verified", urlpolicy.CodeHost},
	{"https://?q", urlpolicy.CodeHost},
	{"https://:443/", urlpolicy.CodeHost},
	{"https://./", urlpolicy.CodeHost},
	{"https://../", urlpolicy.CodeHost},
	{"https://.h.example/", urlpolicy.CodeHost},
	{"https://h..example/", urlpolicy.CodeHost},
	{"https://h.example../", urlpolicy.CodeHost},
	{"https://-h.example/", urlpolicy.CodeHost},
	{"https://h-.example/", urlpolicy.CodeHost},
	{"https://" + label63 + "a.example/", urlpolicy.CodeHost},
	{"https://" + strings.Repeat(label63+".", 3) + strings.Repeat("b", 62) + "/", urlpolicy.CodeHost},
	{"https://h*.example/", urlpolicy.CodeHost},
	{"https://*.example/", urlpolicy.CodeHost},
	{"https://h,i.example/", urlpolicy.CodeHost},
	{"https://h.example;evil.example/", urlpolicy.CodeHost},
	{"https://h.exam%70le/", urlpolicy.CodeHost},
	{"https://%6c%6fcalhost/", urlpolicy.CodeHost},
	{"https://127.0.0.1%2f.h.example/", urlpolicy.CodeHost},
	{"https://localhost/", urlpolicy.CodeHost},
	{"https://LOCALHOST/", urlpolicy.CodeHost},
	{"https://localhost./", urlpolicy.CodeHost},
	{"https://a.localhost/", urlpolicy.CodeHost},
	{"https://receiver/", urlpolicy.CodeHost},
	{"https://receiver./", urlpolicy.CodeHost},
	{"https://2130706433/", urlpolicy.CodeHost},
	{"https://017700000001/", urlpolicy.CodeHost},
	{"https://0x7f000001/", urlpolicy.CodeHost},
	{"https://0X7F000001/", urlpolicy.CodeHost},
	{"https://0x7f.0.0.1/", urlpolicy.CodeHost},
	{"https://0x7f.0x0.0x0.0x1/", urlpolicy.CodeHost},
	{"https://0177.0.0.1/", urlpolicy.CodeHost},
	{"https://127.0.0.01/", urlpolicy.CodeHost},
	{"https://127.1/", urlpolicy.CodeHost},
	{"https://127.0.1/", urlpolicy.CodeHost},
	{"https://127.0.0.1./", urlpolicy.CodeHost},
	{"https://8.8.8.8./", urlpolicy.CodeHost},
	{"https://127.0.0.0x1/", urlpolicy.CodeHost},
	{"https://127.0.0.0x/", urlpolicy.CodeHost},
	{"https://256.256.256.256/", urlpolicy.CodeHost},
	{"https://1.2.3.4.5/", urlpolicy.CodeHost},
	{"https://h.example.1/", urlpolicy.CodeHost},
	{"https://0/", urlpolicy.CodeHost},
	{"https://2606:4700:4700::1111/", urlpolicy.CodeHost},
	{"https://[::1/", urlpolicy.CodeHost},
	{"https://[::1]x/", urlpolicy.CodeHost},
	{"https://[::1]]/", urlpolicy.CodeHost},
	{"https://[[::1]]/", urlpolicy.CodeHost},
	{"https://[]/", urlpolicy.CodeHost},
	{"https://[8.8.8.8]/", urlpolicy.CodeHost},
	{"https://[h.example]/", urlpolicy.CodeHost},
	{"https://[v1.a]/", urlpolicy.CodeHost},
	{"https://[fe80::1%25eth0]/", urlpolicy.CodeHost},
	{"https://[2606:4700::1%25eth0]/", urlpolicy.CodeHost},
	{"https://h.example[/", urlpolicy.CodeHost},
	// address
	{"https://127.0.0.1/", urlpolicy.CodeAddress},
	{"https://127.255.255.254:8443/", urlpolicy.CodeAddress},
	{"https://10.0.0.1/", urlpolicy.CodeAddress},
	{"https://172.31.255.255/", urlpolicy.CodeAddress},
	{"https://192.168.1.1/", urlpolicy.CodeAddress},
	{"https://169.254.169.254/latest/meta-data/", urlpolicy.CodeAddress},
	{"https://168.63.129.16/", urlpolicy.CodeAddress},
	{"https://100.100.100.200/", urlpolicy.CodeAddress},
	{"https://0.0.0.0/", urlpolicy.CodeAddress},
	{"https://224.0.0.1/", urlpolicy.CodeAddress},
	{"https://255.255.255.255/", urlpolicy.CodeAddress},
	{"https://[::]/", urlpolicy.CodeAddress},
	{"https://[::1]/", urlpolicy.CodeAddress},
	{"https://[0:0:0:0:0:0:0:1]/", urlpolicy.CodeAddress},
	{"https://[::ffff:127.0.0.1]/", urlpolicy.CodeAddress},
	{"https://[::ffff:8.8.8.8]/", urlpolicy.CodeAddress},
	{"https://[::FFFF:7f00:1]/", urlpolicy.CodeAddress},
	{"https://[::127.0.0.1]/", urlpolicy.CodeAddress},
	{"https://[64:ff9b::7f00:1]/", urlpolicy.CodeAddress},
	{"https://[2002:7f00:1::]/", urlpolicy.CodeAddress},
	{"https://[2001:0:7f00:1::]/", urlpolicy.CodeAddress},
	{"https://[fd00:ec2::254]/", urlpolicy.CodeAddress},
	{"https://[fe80::1]/", urlpolicy.CodeAddress},
	{"https://[ff02::1]/", urlpolicy.CodeAddress},
	// port
	{"https://h.example:/", urlpolicy.CodePort},
	{"https://h.example:0/", urlpolicy.CodePort},
	{"https://h.example:00443/", urlpolicy.CodePort},
	{"https://h.example:65536/", urlpolicy.CodePort},
	{"https://h.example:-1/", urlpolicy.CodePort},
	{"https://h.example:+443/", urlpolicy.CodePort},
	{"https://h.example:4_43/", urlpolicy.CodePort},
	{"https://h.example:https/", urlpolicy.CodePort},
	{"https://h.example:18446744073709552059/", urlpolicy.CodePort},
	{"https://[2606:4700:4700::1111]:/", urlpolicy.CodePort},
}

func TestParseRefuses(t *testing.T) {
	for _, row := range refused {
		u, err := public.Parse(row.raw)
		var f *urlpolicy.Fault
		if !errors.As(err, &f) {
			t.Errorf("Parse(%.80q) = %v, %v; want a fault", row.raw, u.HostPort(), err)
			continue
		}
		if f.Code != row.code || f.Detail == "" {
			t.Errorf("Parse(%.80q): %v; want code %s", row.raw, f, row.code)
		}
		if u != (urlpolicy.URL{}) {
			t.Errorf("Parse(%.80q) gave a URL beside its fault", row.raw)
		}
	}
}

func TestAllowListOpensWhatItCovers(t *testing.T) {
	for _, raw := range []string{
		"https://127.0.0.1:8443/x", "https://localhost/", "https://LocalHost.:8443/", "https://a.localhost/",
		"https://receiver:8443/",
	} {
		if _, err := loopback.Parse(raw); err != nil {
			t.Errorf("Parse(%q): %v", raw, err)
		}
	}
	for _, raw := range []string{
		"https://10.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://2130706433/",
		"https://127.1/", "https://169.254.169.254/",
	} {
		if _, err := loopback.Parse(raw); err == nil {
			t.Errorf("Parse(%q) accepted", raw)
		}
	}
	// host bits set: means 10.0.0.0/8
	private := urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("10.9.8.7/8")}, nil)
	for raw, want := range map[string]bool{
		"https://receiver/": true, "https://10.1.1.1/": true, "https://localhost/": false,
	} {
		if _, err := private.Parse(raw); (err == nil) != want {
			t.Errorf("Parse(%q): %v", raw, err)
		}
	}
}

func TestAllowPortsBindURLs(t *testing.T) {
	p := urlpolicy.NewPolicy(nil, []uint16{443, 8443})
	for raw, want := range map[string]bool{
		"https://h.example/": true, "https://h.example:443/": true, "https://h.example:8443/": true,
		"https://h.example:22/": false, "https://8.8.8.8:80/": false,
	} {
		_, err := p.Parse(raw)
		var f *urlpolicy.Fault
		if (err == nil) != want || !want &&
			(!errors.As(err, &f) || f.Code != urlpolicy.CodePort ||
				!strings.Contains(f.Detail, "443, 8443")) {
			t.Errorf("Parse(%q): %v", raw, err)
		}
	}
}

func TestFaultsKeepSecretsToThemselves(t *testing.T) {
	for _, raw := range []string{
		"https://user:MARKER@h.example/", "http://h.example/?token=MARKER",
		"https://127.0.0.1/MARKER?MARKER#MARKER",
		"https://h.example:0/?MARKER", "https://h.example/?MARKER=%zz", "https://h.example/MARKER ü",
		"MARKER", "https://h.example/#MARKER",
		"https://2130706433/?MARKER", "https:MARKER", "https://h.example:1:2/?MARKER", "https://MARKER@",
		"https://[::1?MARKER",
	} {
		_, err := public.Parse(raw)
		if err == nil || strings.Contains(err.Error(), "MARKER") {
			t.Errorf("Parse(%q): %v", raw, err)
		}
	}
}
