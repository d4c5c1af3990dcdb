package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// The SDKs, installed by the lines that the service's page has for them, start, read, list and cancel
// sessions at that service, with the programs of their own tests.
func TestSDKsAtTheService(t *testing.T) {
	prove.Only(t, "languages", "it installs and runs the SDKs")
	t.Parallel()
	r := boot(t)
	lines := string(fromService(t, r.Base+"/sdk/"))
	for _, kit := range []struct {
		program, client, line string // with the link in it as a group
		install               func(t *testing.T, dir, link string)
	}{
		{"python3", "client.py", `pip install (\S+\.whl)<`, pipInstall},
		{"node", "client.mjs", `npm install (\S+\.tgz)<`, npmInstall},
		{"php", "client.php", `curl -O (\S+\.php)<`, download},
		{"ruby", "client.rb", `curl -O (\S+\.rb)<`, download},
	} {
		t.Run(kit.program, func(t *testing.T) {
			prove.Program(t, kit.program+", in which the SDK's users write", kit.program)
			link := regexp.MustCompile(kit.line).FindStringSubmatch(lines)
			if link == nil {
				t.Fatalf("the page has no line for it:\n%s", lines)
			}
			dir := t.TempDir()
			kit.install(t, dir, link[1])
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

func pipInstall(t *testing.T, dir, link string) {
	t.Helper()
	runIn(t, dir, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--no-cache-dir", "--no-index", "--target", ".", link)
}

// npmInstall installs a package with npm, or does what npm would.
func npmInstall(t *testing.T, dir, link string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err == nil {
		runIn(t, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache",
			t.TempDir(), link)
		return
	}
	download(t, dir, link)
	to := filepath.Join("node_modules", "verifyd")
	if err := os.MkdirAll(filepath.Join(dir, to), 0o700); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "tar", "-xzf", path.Base(link), "-C", to, "--strip-components", "1")
}

func download(t *testing.T, dir, link string) {
	t.Helper()
	place(t, filepath.Join(dir, path.Base(link)), fromService(t, link))
}

func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// fromService reads what a service serves.
func fromService(t *testing.T, link string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer := must[*http.Response](t)(client.Get(link))
	defer answer.Body.Close()
	data := must[[]byte](t)(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", link, answer.Status)
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
