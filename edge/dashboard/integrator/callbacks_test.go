package integrator

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Whatever an integrator puts into an id, the copied command sends exactly the body that is signed, and
// contains nothing that a terminal would interpret or hide.
func TestCurlLineIsSafeToPaste(t *testing.T) {
	for _, user := range []string{
		"sailor_42", "o'brien", "a\u202eb\u2066c", "line\nend\ttab\x1b[31m\x7f",
		"100% $HOME `id` $(id) !! \\n \u200b \"x\"", "שלום 👩‍👩‍👧 e\u0301", "*?[a-z]{1,2}~",
	} {
		body := `{"platform_user_id":"` + user + `","guild_id":"","verified":true}`
		raw := fmt.Sprintf("POST /v HTTP/1.1\r\nHost: bot.example.com\r\nContent-Length: "+
			"%d\r\nWebhook-Id: cb_x\r\n\r\n%s", len(body), body)
		line := curlOf("https://bot.example.com/v?a[]=1&b={1,2}", raw)
		for _, r := range strings.ReplaceAll(line, "\n", "") {
			if !strconv.IsGraphic(r) {
				t.Errorf("%q: the line holds %U", user, r)
			}
		}
		if !strings.HasPrefix(line, "curl -ig 'https://bot.example.com/v?a[]=1&b={1,2}'") {
			t.Errorf("the line begins %.60s", line)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { printf '%s\n' \"$@\"; }; "+line).
			CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "--data-binary\n"+body+"\n") {
			t.Errorf("%q is sent as\n%s\n%v, by\n%s", body, out, err, line)
		}
	}
}
