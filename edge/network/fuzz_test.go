package network

import (
	"bytes"
	stdjson "encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/network/netsettings"
)

// A provider's claims are read as another JSON reader reads them, and a repeated name, for which two readers
// could see two users, is refused. A subject is text or a whole number, in the digits that the provider
// wrote.
func FuzzUserInfo(f *testing.F) {
	for _, s := range []string{
		`{"sub":"u","name":"Ann\u0000Bo"}`, `{"id":12345678901234567890,"login":"x"}`, `{"id":1e3}`,
		`{"id":-0}`,
		`{"sub":"a","sub":"b"}`, `{"a":{"b":["x",{"c":7}]},"a.b":"y"}`, `{"sub":null}`, `null`, `[]`, `{} {}`,
		"{\"sub\":\"\xff\"}", `{"sub":"\ud800"}`, `{"a/b":{"~":"t"}}`,
	} {
		f.Add([]byte(s), "sub")
		f.Add([]byte(s), "a.b.1.c")
		f.Add([]byte(s), "/a~1b/~0")
		f.Add([]byte(s), "id")
	}
	whole := regexp.MustCompile(`^-?[0-9]+$`)
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		c, err := parseClaims(body)
		if err != nil {
			if c != nil {
				t.Fatalf("%s: %v, %v", body, c, err)
			}
			return
		}
		var std map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(body, &std); err != nil || len(std) != len(c) {
			t.Fatalf("%s: %v is read, encoding/json reads %v, %v", body, c, std, err)
		}
		for name, v := range c {
			d := stdjson.NewDecoder(bytes.NewReader(v))
			d.UseNumber() // one that no float64 holds is JSON, too
			if d.Decode(new(any)) != nil || string(v) != string(std[name]) {
				t.Fatalf("%s: %q is %s, encoding/json reads %s", body, name, v, std[name])
			}
		}
		text, err := c.text(path)
		if err != nil {
			if text != "" || len(err.Error()) > 400 {
				t.Fatalf("%s: %q beside %v", body, text, err)
			}
		} else if v, found := c.find(path); !found || !c.has(path) {
			t.Fatalf("%s: %q is at %q, where nothing is", body, text, path)
		} else if s := new(string); stdjson.Unmarshal(v, s) == nil && *s != text ||
			v.Kind() == '0' && (!whole.MatchString(text) || text != string(v)) {
			t.Fatalf("%s: %q is %s", body, text, v)
		}
		if s := c.subject(); s != "" {
			var std struct{ Sub string }
			if stdjson.Unmarshal(c[netsettings.ClaimSubject], &std.Sub) != nil || std.Sub != s {
				t.Fatalf("%s: the subject is %q, encoding/json reads %q", body, s, std.Sub)
			}
		}
		if name := c.displayName([]string{path, "name", "login"}); len(name) > maxDisplayBytes ||
			strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("%s: shown as %q", body, name)
		}
	})
}

// A provider of OpenID 2.0 has confirmed an assertion if its answer has exactly one line is_valid:true, and
// exactly one that names the protocol.
func FuzzSteamAnswer(f *testing.F) {
	const ns = "ns:" + openIDNamespace + "\n"
	for _, s := range []string{
		ns + "is_valid:true\n", ns + "is_valid:false\n", ns + "is_valid:true", "is_valid:true\n",
		ns + "is_valid:false\nis_valid:true\n", ns + "is_valid:true\r\n", ns + "Is_Valid:true\n", ns +
			"\nis_valid:true\n",
		ns + "is_valid: true\n", ns + strings.Repeat("a:b\n", 20) + "is_valid:true\n", "<html>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		valid, ok := readVerification(body)
		lines := strings.Split(body, "\n")
		count := func(prefix string) (n int) {
			for _, l := range lines {
				if strings.HasPrefix(l, prefix) {
					n++
				}
			}
			return n
		}
		payload := func(line string) bool { return slices.Contains(lines, line) }
		if ok && (count("ns:") != 1 || count("is_valid:") != 1 || !payload(strings.TrimSuffix(ns, "\n")) ||
			valid != payload("is_valid:true") || !valid && !payload("is_valid:false")) || valid && !ok {
			t.Fatalf("%q: valid %t, ok %t", body, valid, ok)
		}
		if body == ns+"is_valid:true\n" && !valid {
			t.Fatal("the right answer is not taken")
		}
	})
}

// An accepted return is of one protocol, with each parameter once, and within bounds.
func FuzzSteamReturn(f *testing.F) {
	f.Add("state=s&openid.mode=id_res&openid.claimed_id=" +
		url.QueryEscape(steamIdentity+"76561197960435530"))
	f.Add("state=s&openid.mode=cancel&openid.mode=id_res")
	f.Add("code=c&state=s&openid.mode=id_res")
	f.Add("state=s&openid.claimed_id=" + url.QueryEscape(steamIdentity+"76561197960265728\n"))
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		a, err := parseAssertion(q)
		if err != nil || a == nil {
			if a != nil {
				t.Fatalf("%q: %+v beside %v", query, a, err)
			}
			return
		}
		n := 0
		for name, values := range q {
			if !strings.HasPrefix(name, openIDPrefix) {
				continue
			}
			n++
			if len(values) != 1 || values[0] != a.fields[name] || len(values[0]) > maxOpenIDBytes {
				t.Fatalf("%q: %s is %q, of %q", query, name, a.fields[name], values)
			}
		}
		if n != len(a.fields) || n > maxOpenIDFields {
			t.Fatalf("%q: %d fields of %d", query, len(a.fields), n)
		}
		if claimed := a.get("claimed_id"); isSteamIdentity(claimed) {
			if id := strings.TrimPrefix(claimed, steamIdentity); len(id) != 17 || strings.Trim(id,
				"0123456789") != "" ||
				id < "76561197960265728" || id > "76561202255233023" {
				t.Fatalf("%q is taken for an account", claimed)
			}
		}
	})
}
