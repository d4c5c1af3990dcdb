package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/cmd/verifyd/version"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

func TestMain(m *testing.M) {
	code := natstest.Tests(m).Run()
	_ = os.RemoveAll(releasedIn)
	os.Exit(code)
}

const repository = "../.."

// here is the one target that the tests build: the packages' tests run on it.
var here = target{"linux", runtime.GOARCH}

// releasedIn is the folder of released. It belongs to no test, since all use it.
var releasedIn string

// released is a release of the checked-out source, for one target.
var released = sync.OnceValues(func() (*builder, error) {
	src, err := look(context.Background(), repository)
	if err != nil {
		return nil, err
	}
	if releasedIn, err = os.MkdirTemp("", "verifyd-release-test-"); err != nil {
		return nil, err
	}
	b := &builder{source: src, targets: []target{here}, out: releasedIn, log: io.Discard}
	return b, b.build(context.Background())
})

// release returns a release that was built once for all tests.
func release(t *testing.T) *builder {
	t.Helper()
	prove.Only(t, "packages", "a release is compiled")
	if runtime.GOOS != "linux" {
		t.Skip("skipped: the packages are for Linux")
	}
	b, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// file returns the path of the one file of the release whose name has the suffix.
func (b *builder) file(t *testing.T, suffix string) string {
	t.Helper()
	for _, name := range b.made {
		if strings.HasSuffix(name, suffix) {
			return filepath.Join(b.out, name)
		}
	}
	t.Fatalf("no *%s among %q", suffix, b.made)
	return ""
}

// A release from the same commit in another folder and at another time is identical, to the bit.
func TestSameBytesTwice(t *testing.T) {
	t.Parallel()
	first := release(t)
	root := t.TempDir()
	copyTree(t, root)
	again := &builder{source: first.source, targets: first.targets, out: filepath.Join(t.TempDir(), "out"),
		log: io.Discard}
	again.root = root
	if err := again.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(first.made, again.made) || len(first.made) < 7 {
		t.Fatalf("%q, and then %q", first.made, again.made)
	}
	for _, name := range first.made {
		if !bytes.Equal(read(t, filepath.Join(first.out, name)), read(t, filepath.Join(again.out, name))) {
			t.Errorf("%s differs", name)
		}
	}
	// Windows has an archive of its own kind.
	var zips [2]bytes.Buffer
	for i, b := range []*builder{first, again} {
		if err := writeZip(&zips[i], b.extras, b.date); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(zips[0].Bytes(), zips[1].Bytes()) {
		t.Error("the zip differs")
	}
}

// copyTree copies the tracked files, and new ones, as they are now.
func copyTree(t *testing.T, to string) {
	t.Helper()
	list := output(t, "git", "-C", repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(repository, name))
		if err != nil {
			continue // deleted
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, read(t, filepath.Join(repository, name)), info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// An archive is unpacked and run; its checksums are right; it reports its version, and has the documented
// files.
func TestArchive(t *testing.T) {
	t.Parallel()
	b := release(t)
	dir := t.TempDir()
	run(t, "tar", "-C", dir, "-xzf", b.file(t, here.String()+".tar.gz"), "--strip-components=1")
	said := output(t, filepath.Join(dir, "verifyd"), "version")
	want := "verifyd " + b.version + " (commit " + b.commit + ", " + b.date.Format(time.RFC3339) + ", "
	if !strings.HasPrefix(said, want) {
		t.Errorf("version: %q, want %q", said, want)
	}
	for _, name := range []string{
		"LICENSE", "README.md", "CHANGELOG.md", "verifyd-bench", "man/verifyd.1", "man/verifyd-bench.1",
		"completions/bash/verifyd", "completions/zsh/_verifyd", "completions/fish/verifyd.fish",
	} {
		if len(read(t, filepath.Join(dir, name))) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	help := output(t, filepath.Join(dir, "verifyd-bench"), "measure", "--help")
	if !strings.Contains(help, "--duration") {
		t.Errorf("the bench says %s", help)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = b.out
	if said, err := sums.CombinedOutput(); err != nil ||
		strings.Count(string(said), ": OK") != len(b.made)-1 {
		t.Errorf("%v: %s", err, said)
	}
}

// The bill of materials names what the binary was linked from, and the provenance what everything was built
// from.
func TestPapers(t *testing.T) {
	t.Parallel()
	b := release(t)
	var bom struct {
		Components []struct{ Purl, Name string }
	}
	decode(t, b.file(t, ".cdx.json"), &bom)
	listed := map[string]bool{}
	for _, c := range bom.Components {
		listed[c.Name] = true
	}
	for _, name := range []string{"std", "github.com/nats-io/nats-server/v2", "github.com/alecthomas/kong"} {
		if !listed[name] {
			t.Errorf("the bill of materials has no %s", name)
		}
	}
	if listed["github.com/google/rpmpack"] {
		t.Error("the bill of materials has what only packs")
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct {
					Name, URI string
					Digest    map[string]string
				}
			}
		}
	}
	decode(t, b.file(t, ".intoto.json"), &statement)
	if len(statement.Subject) != len(b.made)-2 { // except itself and the checksums
		t.Errorf("%d subjects of %q", len(statement.Subject), b.made)
	}
	for _, s := range statement.Subject {
		if got := sum(read(t, filepath.Join(b.out, s.Name))); got != s.Digest.SHA256 {
			t.Errorf("%s has the digest %s, not %s", s.Name, got, s.Digest.SHA256)
		}
	}
	materials := statement.Predicate.BuildDefinition.ResolvedDependencies
	if len(materials) < len(bom.Components) || materials[0].Digest["gitCommit"] != b.commit {
		t.Errorf("materials: %+v", materials)
	}
}

// A release reports only its number, and any other build reports that it is none.
func TestWhatIsARelease(t *testing.T) {
	t.Parallel()
	root, number := t.TempDir(), version.Number()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		run(t, "git", "-C", root, "add", ".")
		run(t, "git", "-C", root, "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org",
			"commit", "--quiet", "--message", "A change")
	}
	expect := func(want string, reasons int) {
		t.Helper()
		s, err := look(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		if want = strings.ReplaceAll(want, "HASH", s.commit[:12]); s.version != want ||
			len(s.unreleased) != reasons || s.author != "Somebody <somebody@example.org>" {
			t.Errorf("%+v, want version %s for %d reasons", s, want, reasons)
		}
	}
	run(t, "git", "-C", root, "init", "--quiet")
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")
	write("Dockerfile", "ARG GO_IMAGE=golang:1.2.3-alpine\n")
	commit()
	expect(number+"-dev+HASH", 2)
	write("Dockerfile", "ARG GO_IMAGE=golang:"+strings.TrimPrefix(runtime.Version(), "go")+"-alpine\n")
	commit()
	expect(number+"-dev+HASH", 1)
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## ["+number+"] - 2026-12-01\n")
	expect(number+"-dev+HASH.changed", 1)
	commit()
	expect(number, 0)
}

// The image's settings are the Dockerfile's, and so are the folders that it has.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := string(read(t, filepath.Join(repository, "Dockerfile")))
	s, err := settingsOf(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.User != "65532:65532" || !slices.Equal(s.Entrypoint, []string{"/verifyd"}) ||
		!slices.Equal(s.Cmd, []string{"serve"}) || len(s.Env) != 2 || len(s.Volumes) != 1 ||
		s.Healthcheck["Interval"] != 5*time.Second {
		t.Errorf("%+v", s)
	}
	made := strings.Split(strings.TrimSpace(after(t, text, "RUN mkdir -p ")), " ")
	for i, folder := range made {
		if made[i] = strings.TrimPrefix(folder, "/"); made[i] == "tmp-of-images" {
			made[i] = "tmp"
		}
	}
	for _, folder := range imageFolders {
		if folder != "shared" && !slices.Contains(made, folder) {
			t.Errorf("the Dockerfile makes no /%s", folder)
		}
	}
	if len(made)+1 != len(imageFolders) {
		t.Errorf("the Dockerfile makes %q, and the image has %q", made, imageFolders)
	}
	if _, err := settingsOf(text + "STOPSIGNAL SIGINT\n"); err == nil {
		t.Error("an instruction that nobody follows is accepted")
	}
}

// after returns the rest of the line after some text.
func after(t *testing.T, text, what string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, what)
	line, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("nothing begins with %q", what)
	}
	return line
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *testing.T, path string, v any) {
	t.Helper()
	if err := json.Unmarshal(read(t, path), v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// run runs a program that must succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	_ = output(t, name, args...)
}

// output returns the output of a program that must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// needs returns the path of a program.
func needs(t *testing.T, name string) string {
	t.Helper()
	prove.Only(t, "packages", "it runs "+name)
	return prove.Program(t, name+", which Debian has", name)
}
