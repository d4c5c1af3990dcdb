package sdk

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"verifyd/edge/apidoc/openapitest"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

const version = "1.2.3"

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// served serves the kits as the service does, and returns the base URL.
func served(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	k, err := New(version, base, "")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range k.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return base
}

func TestDocCommentListsTheRoutes(t *testing.T) {
	t.Parallel()
	k, err := New(version, "https://verify.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	openapitest.Routes(t, "doc.go", k.Routes())
}

// The same source yields the same bytes, and another version other ones.
func TestKitsAreRepeatable(t *testing.T) {
	t.Parallel()
	made := func(version string) *Kits {
		k, err := New(version, "https://verify.example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, same, other := made(version), made(version), made("1.2.4")
	for i, a := range one.artifacts {
		if !bytes.Equal(a.data, same.artifacts[i].data) {
			t.Errorf("%s is not the same twice", a.Name)
		}
		if o := other.artifacts[i]; a.Name != "" && bytes.Equal(a.data, o.data) ||
			a.Name == "" && a.Install == o.Install {
			t.Errorf("%s is that of another version", a.Language)
		}
		if !bytes.Contains(one.page, []byte(a.Install)) {
			t.Errorf("the page does not say %q", a.Install)
		}
	}
	if _, err := New("0.9.0-dev", "https://verify.example.com", ""); err == nil {
		t.Error("a version that the tools do not take")
	}
}

// kit is an installed kit, and how a program with it is run.
type kit struct {
	name     string
	program  string
	install  func(t *testing.T, base, dir string)
	client   string // of testdata
	receiver string
	surface  string
	types    string   // where it is installed, the marker for type checkers
	source   string   // of the kit, in this folder
	kinds    []string // of receivers
	// noPublicKeys is the error of a receiver that gets a public key, if the language cannot check one.
	noPublicKeys string
	env          func(dir string) []string
	// listen is the address for receivers that need one; they print it on standard error.
	listen func(tb testing.TB) string
}

var kits = []kit{
	{
		name: "JavaScript", program: "node", client: "client.mjs", receiver: "receiver.mjs",
		surface: "surface.mjs", types: "node_modules/verifyd/index.d.ts", source: "javascript/index.js",
		kinds: []string{"node", "fetch"}, env: func(string) []string { return nil },
		install: func(t *testing.T, base, dir string) {
			t.Helper()
			link := base + "/sdk/verifyd-" + version + ".tgz"
			if _, err := exec.LookPath("npm"); err == nil {
				run(t, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache",
					t.TempDir(), link)
				return
			}
			to := filepath.Join(dir, "node_modules", "verifyd") // where npm puts it
			if err := os.MkdirAll(to, 0o700); err != nil {
				t.Fatal(err)
			}
			archive := filepath.Join(t.TempDir(), "verifyd.tgz")
			if err := os.WriteFile(archive, fetch(t, link), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, dir, "tar", "-xzf", archive, "-C", to, "--strip-components", "1")
		},
	},
	{
		name: "Python", program: "python3", client: "client.py", receiver: "receiver.py",
		surface: "surface.py", types: "installed/verifyd/py.typed", source: "python/verifyd/__init__.py",
		kinds: []string{"wsgi", "asgi"}, noPublicKeys: "Python's standard library does not check ed25519",
		env: func(dir string) []string {
			return []string{"PYTHONPATH=" + filepath.Join(dir, "installed"), "PYTHONDONTWRITEBYTECODE=1"}
		},
		install: func(t *testing.T, base, dir string) {
			t.Helper()
			run(t, dir, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
				"--no-cache-dir", "--no-index", "--target", "installed",
				base+"/sdk/verifyd-"+version+"-py3-none-any.whl")
		},
	},
	{
		name: "PHP", program: "php", client: "client.php", receiver: "receiver.php",
		surface: "surface.php", source: "php/verifyd.php",
		kinds:   []string{"respond"},
		env:     func(string) []string { return nil },
		install: oneFile("verifyd.php"), listen: natstest.Address,
	},
	{
		name: "Ruby", program: "ruby", client: "client.rb", receiver: "receiver.rb",
		surface: "surface.rb", source: "ruby/verifyd.rb", kinds: []string{"rack"},
		env: func(string) []string { return nil }, install: oneFile("verifyd.rb"),
	},
}

// oneFile downloads a kit that is a file.
func oneFile(name string) func(t *testing.T, base, dir string) {
	return func(t *testing.T, base, dir string) {
		t.Helper()
		data := fetch(t, base+"/sdk/"+name)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// installed installs a kit from the service with the language's own tool, next to the programs of testdata.
func (k kit) installed(t *testing.T) (dir string) {
	t.Helper()
	prove.Program(t, k.program+", in which the SDK's users write", k.program)
	dir = t.TempDir()
	k.install(t, served(t), dir)
	for _, name := range []string{k.client, k.receiver, k.surface} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command runs a program that uses the kit.
func (k kit) command(dir string, args ...string) *exec.Cmd {
	c := exec.Command(k.program, args...)
	c.Dir, c.Env = dir, append(os.Environ(), k.env(dir)...)
	return c
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func fetch(t *testing.T, link string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: natstest.TestTimeout}
	answer, err := client.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", link, answer.Status, err)
	}
	return b.Bytes()
}
