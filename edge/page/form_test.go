package page

import (
	"net/http"
	"testing"
)

// A post is from a page of this site if its browser says so, or, an older one, names this site's origin: its
// scheme, too.
func TestPostsOfOtherSites(t *testing.T) {
	const host, site = "verify.example.com", "https://verify.example.com"
	for _, tc := range []struct {
		base, to, fetch, origin string
		ok                      bool
	}{
		{site, host, "same-origin", site, true},
		{site, host, "", site, true},
		{site + "/v", "inner:8080", "", site, true},
		{site, host, "cross-site", "https://evil.example", false},
		{site, host, "", "https://evil.example", false},
		{site, host, "", "http://" + host, false},
		{site, host, "", "HTTP://" + host, false},
		{site, host, "same-origin", "http://" + host, false},
		{"http://127.0.0.1:8080", "127.0.0.1:8080", "", "http://127.0.0.1:8080", true},
		{"http://127.0.0.1:8080", "127.0.0.1:8080", "", "http://127.0.0.1:1", false},
	} {
		c, err := NewCrossOrigin(tc.base)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+tc.to+"/signin", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.fetch != "" {
			r.Header.Set("Sec-Fetch-Site", tc.fetch)
		}
		r.Header.Set("Origin", tc.origin)
		if err := c.Check(r); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
