package sdk

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// The go command fetches package client from the service, and a program with it compiles.
func TestGoModule(t *testing.T) {
	prove.Only(t, "languages", "the go command compiles a program")
	t.Parallel()
	k, err := New(version, "https://verify.example.com/at", "/at")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range k.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	const path = "verify.example.com/at/sdk/go"
	found := fetch(t, server.URL+"/sdk/go")
	if !bytes.Contains(found, []byte(`content="`+path+` mod https://verify.example.com/at/sdk/mod">`)) {
		t.Errorf("the go command finds %s", found)
	}
	if !bytes.Contains(k.page, []byte("GOPRIVATE=verify.example.com go get "+path+"@v"+version)) {
		t.Errorf("the page has no line for it:\n%s", k.page)
	}
	dir := t.TempDir()
	program := `package main

import client "` + path + `"

func main() {
	_, err := client.New("https://verify.example.com", "vfy_x")
	_, err = client.NewReceiver(nil, nil)
	println(err.Error())
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	// The dependencies of package client are here already, as this project needs them too.
	library, _, _ := strings.Cut(webhooksModule, " ")
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mod", "init", "bot.example"},
		{"mod", "edit", "-replace", library + "=" + strings.TrimSpace(string(folder))},
		{"get", path + "@latest"},
		{"build", "-o", "bot", "."},
	} {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOPROXY="+server.URL+"/sdk/mod", "GONOSUMDB=*", "GOWORK=off",
			"GOMODCACHE="+filepath.Join(dir, "cache"), "GOFLAGS=-modcacherw -mod=mod")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bot")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no signing secret") {
		t.Errorf("%v: %s", err, out)
	}
	project, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(project), webhooksModule) {
		t.Errorf("the module needs %s, and this project another version", webhooksModule)
	}
}

// The module has every file of package client and of what it imports, except for their tests.
func TestGoModuleIsWhole(t *testing.T) {
	t.Parallel()
	m, err := newModule(version, "https://verify.example.com")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"go.mod"}
	for _, pattern := range []string{"*.go", "call/*.go"} {
		files, err := fs.Glob(os.DirFS("../client"), pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				want = append(want, name)
			}
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(m.files)); !slices.Equal(got, want) {
		t.Errorf("the module has %q, package client %q", got, want)
	}
}

// If the go command would not look for a module, the service has none.
func TestGoModuleNeedsAHost(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://verify.example.com": "verify.example.com/sdk/go", "https://verify.example.com:8443": "",
		"http://verify.example.com": "", "https://localhost": "", "https://[::1]": "",
		"https://Verify.example.com": "",
	} {
		if got := modulePath(base); got != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
}
