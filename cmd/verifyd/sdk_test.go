package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"verifyd/edge/chromiumtest"
)

// The SDKs start, read, list and cancel sessions at a real service, by the programs of their own tests.
func TestSDKsAtTheService(t *testing.T) {
	parallel(t)
	r := boot(t)
	for _, kit := range []struct{ program, client, from, to string }{
		{"python3", "client.py", "../../edge/sdk/python/verifyd/__init__.py", "verifyd.py"},
		{"node", "client.mjs", "../../edge/sdk/javascript/index.js", "node_modules/verifyd/index.js"},
		{"php", "client.php", "/sdk/verifyd.php", "verifyd.php"},
		{"ruby", "client.rb", "/sdk/verifyd.rb", "verifyd.rb"},
	} {
		t.Run(kit.program, func(t *testing.T) {
			chromiumtest.Program(t, kit.program, kit.program+", in which the SDK's users write", kit.program)
			dir := t.TempDir()
			source := fromService(t, r, kit.from)
			place(t, filepath.Join(dir, kit.to), source)
			if strings.HasPrefix(kit.to, "node_modules") {
				place(t, filepath.Join(dir, "node_modules", "verifyd", "package.json"),
					must[[]byte](t)(os.ReadFile("../../edge/sdk/javascript/package.json")))
			}
			place(t, filepath.Join(dir, kit.client),
				must[[]byte](t)(os.ReadFile(filepath.Join("../../edge/sdk/testdata", kit.client))))
			does := func(calls ...string) []map[string]map[string]any {
				t.Helper()
				c := exec.CommandContext(t.Context(), kit.program, kit.client)
				c.Dir, c.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
				c.Stdin = strings.NewReader(fmt.Sprintf(`{"base":%q,"key":%q,"calls":[%s]}`, r.Base, r.apiKey,
					strings.Join(calls, ",")))
				var said struct {
					Ends []map[string]map[string]any `json:"ends"`
				}
				out, err := c.Output()
				if err != nil || json.Unmarshal(out, &said) != nil || len(said.Ends) != len(calls) {
					t.Fatalf("%v: %s", err, out)
				}
				return said.Ends
			}
			user := "sailor of " + kit.program
			started := does(fmt.Sprintf(
				`{"call":"start","platform":"p","user":%q,"guild":"ü","callback":%q}`, user, r.inbox.CallbackURL()))
			token, _ := started[0]["ok"]["session"].(string)
			id, _ := started[0]["ok"]["id"].(string)
			if !regexp.MustCompile(`^[a-z2-7]{32}$`).MatchString(id) {
				t.Fatalf("it started %v", started)
			}
			ends := does(
				fmt.Sprintf(`{"call":"read","session":%q}`, token),
				fmt.Sprintf(`{"call":"list","user":%q,"state":"pending","limit":1}`, user),
				fmt.Sprintf(`{"call":"cancel","session":%q}`, id),
				fmt.Sprintf(`{"call":"resend","session":%q}`, id),
				`{"call":"read","session":"nobody"}`,
				`{"call":"start","platform":"","user":"u","callback":"http://x"}`,
			)
			for i, want := range []string{
				"map[ok:map[attempts:[] completed:<nil> delivery:none id:" + id +
					" state:pending test:false user:" + user + " verified:<nil>]]",
				"map[ok:map[ids:[" + id + "] next:",
				"state:canceled",
				"code:nothing_to_send",
				"code:session_not_found",
				"code:invalid_request fields:[platform callback_url]",
			} {
				if got := fmt.Sprint(ends[i]); !strings.Contains(got, want) {
					t.Errorf("call %d ends with %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// fromService reads a file of this repository, or of the service where its path begins with a slash.
func fromService(t *testing.T, r *rig, path string) []byte {
	t.Helper()
	if !strings.HasPrefix(path, "/") {
		return must[[]byte](t)(os.ReadFile(path))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer := must[*http.Response](t)(client.Get(r.Base + path))
	defer answer.Body.Close()
	data := must[[]byte](t)(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, answer.Status)
	}
	return data
}

func place(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
