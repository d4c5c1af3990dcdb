package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"verifyd/docs"
	"verifyd/docs/verify"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// sample is a block of code in a document.
type sample struct {
	file   string // below the folder docs
	line   int
	syntax string // as in "sh"; empty if the block names none
	text   string
}

func (s sample) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// trial is how a sample is tested: here, or by another test.
type trial struct {
	file, begins string // which it is
	try          func(t *testing.T, p *sampleRig, s sample)
	// by names the test that runs what cannot be run here, and why is the reason. Commands in it are parsed
	// all the same.
	by, why string
}

// trials are in the order of the samples, since some depend on earlier ones.
var trials = []trial{
	{"INTEGRATING.md", "curl https://verify.example.com/verify/init", tryStart, "", ""},
	{"INTEGRATING.md", `{"verify_url"`, tryAnswer, "", ""},
	{"INTEGRATING.md", "verifyd key create", tryKeys, "", ""},
	{"INTEGRATING.md", "curl https://verify.example.com/sessions/$SESSION/confirm", tryConfirm, "", ""},
	{"INTEGRATING.md", "_, err = c.Confirm", inGo, "", ""},
	{"INTEGRATING.md", "POST /verified", tryCallback, "", ""},
	{"INTEGRATING.md", "curl https://verify.example.com/signing-keys", tryPublicKeys, "", ""},
	{"INTEGRATING.md", "curl https://verify.example.com/sessions/$SESSION -H", tryRead, "", ""},
	{"INTEGRATING.md", `{"id"`, tryAnswer, "", ""},
	{"INTEGRATING.md", "c, err := client.New", tryGo, "", ""},
	{"INTEGRATING.md", "if refused, ok", inGo, "", ""},
	{"INTEGRATING.md", "receiver, err := client.NewReceiver", inGo, "", ""},
	{"INTEGRATING.md", "client.NewReceiver(secrets", inGo, "", ""},
	{"INTEGRATING.md", "u, err := c.Usage", inGo, "", ""},
	{"INTEGRATING.md", "POST /notices", nil, "TestNoticesArriveByPost", "it needs a receiver"},
	{"INTEGRATING.md", "npm install", tryKits, "TestKits", "the SDKs' own tests install them"},
	{"INTEGRATING.md", "VERIFYD_TRY_SECRET", tryReceiver, "", ""},
	{"INTEGRATING.md", "Receiver bot.example.com", tryReport, "", ""},
	{"INTEGRATING.md", "VERIFYD_API_KEY", tryListen, "", ""},
	{"INTEGRATING.md", "12:03:11  Listening", tryListened, "TestListenCommand",
		"what it prints about a callback depends on one"},
	{"NETWORKS.md", "- kind: discord", tryNetworks, "", ""},
	{"OPERATING.md", "sudo apt install", nil, "TestDebian", "it takes a machine of its own"},
	{"OPERATING.md", "server {", tryProxy, "TestComposeStack", "the proxy that the tests run is Caddy"},
	{"OPERATING.md", "VERIFYD_NATS_URL=tls", nil, "TestEachRoleWithItsOwnCredential",
		"it needs NATS servers with credentials of their own"},
	{"OPERATING.md", "verifyd prepare /etc", tryPrepare, "", ""},
	{"OPERATING.md", "docker compose", tryCompose, "TestComposeStack", "containers take minutes"},
	{"OPERATING.md", "VERIFYD_ENV_FILE", tryCompose, "TestComposeStack", "a certificate needs a public name"},
	{"OPERATING.md", "verifyd prepare secrets", tryKubernetes, "TestReferencesHold",
		"nothing is applied without a cluster"},
	{"OPERATING.md", "verifyd account create", tryAccounts, "", ""},
	{"OPERATING.md", "verifyd operator token create", nil, "TestAccountsAreManagedFromElsewhere",
		"its token is for the samples behind it"},
	{"OPERATING.md", "export VERIFYD_SERVER", nil, "TestAccountsAreManagedFromElsewhere",
		"it needs a service with TLS, and a machine without its store"},
	{"OPERATING.md", "curl https://verify.example.com/manage", nil, "TestAccountsAreManaged",
		"it needs an operator token"},
	{"OPERATING.md", "{\n  \"id\": \"alarm_", tryEvent, "", ""},
	{"OPERATING.md", "verifyd move", nil, "TestMoveUnderLoadKilledAtEveryPoint",
		"it needs other NATS servers"},
	{"OPERATING.md", "verifyd backup", tryBackup, "", ""},
	{"OPERATING.md", "# verifyd-backup.service", tryUnits, "", ""},
	{"OPERATING.md", "export VERIFYD_DATA_DIR", tryRestore, "", ""},
	{"OPERATING.md", "mkdir -m 700", nil, "TestRestoreFromTheCopyOfAKilledService",
		"it takes a service that is killed"},
	{"OPERATING.md", "verifyd erase", tryErase, "", ""},
	{"PERFORMANCE.md", "go run ./cmd/verifyd-bench", nil, "TestDocumentedBenchCommands", "rows take minutes"},
	{"ARCHITECTURE.md", " integrator's server", nil, "", "a drawing"},
	{"CLI.md", "$ verifyd explain", nil, "TestExplainAndDeliveries", "what it prints depends on a session"},
	{"CLI.md", usage, nil, "TestDocumentsOfTheProgram", "it is what the program prints"},
}

// usage begins a help page: TestEveryHelpPage parses the example in it.
const usage = "Usage:"

// Every sample of the documents that the service serves is run, or named with the test that does it and the
// reason. A new one needs a line in the table above.
func TestSamplesOfTheDocuments(t *testing.T) {
	prove.Only(t, "languages", "it runs the code of the documents")
	natstest.NeedsEmbedded(t, "the commands find the store by its folder")
	t.Parallel()
	p := newSampleRig(t)
	p.samples = samples(t)
	parser := must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard)))
	used := map[int]bool{}
	for _, s := range p.samples {
		if strings.HasPrefix(s.file, "verify/") {
			inGuide(t, s)
			continue
		}
		i := trialOf(s)
		if i < 0 {
			t.Errorf("%s: no test runs this sample:\n%s", s, s.text)
			continue
		}
		used[i] = true
		if trials[i].begins != usage {
			commandsParse(t, parser, s)
		}
		if trials[i].try != nil {
			t.Run(s.String(), func(t *testing.T) { trials[i].try(t, p, s) })
		}
	}
	t.Run("served", func(t *testing.T) {
		for _, path := range []string{"/docs", "/docs/api", "/docs/operating", "/docs/search.json", "/sdk/"} {
			fromService(t, p.Base+path)
		}
		expect(t, string(fromService(t, p.Base+"/docs/integrating")), p.Base+"/verify/init")
	})
	tests := testsOfTheRepository(t)
	for i, c := range trials {
		if !used[i] {
			t.Errorf("%s has no sample that begins with %q", c.file, c.begins)
		}
		if c.try == nil && c.why == "" || c.by != "" && !strings.Contains(tests, "func "+c.by+"(") {
			t.Errorf("%s, %q: not run, and no test %q", c.file, c.begins, c.by)
		}
	}
}

func trialOf(s sample) int {
	for i, c := range trials {
		if c.file == s.file && strings.HasPrefix(s.text, c.begins) {
			return i
		}
	}
	return -1
}

// inGuide tests what docs/verify's own tests do not run of a guide: they run its receiver and the two ways to
// verify; the line that fetches the official library is not run, since tests fetch nothing: they have the
// library from this module's cache.
func inGuide(t *testing.T, s sample) {
	t.Helper()
	for _, g := range verify.Guides() {
		if !officialLibrary.MatchString(g.Install) {
			t.Errorf("%s fetches %q", s, g.Install)
		}
		if s.file != "verify/"+g.ID+".md" {
			continue
		}
		for _, c := range []string{
			g.Receiver.Text, g.Standard.Text, g.Library.Text, g.Public.Text, g.Install,
			"pip install cryptography", // which Python's own library does without
		} {
			if strings.TrimSpace(c) == strings.TrimSpace(s.text) {
				return
			}
		}
	}
	t.Errorf("%s: docs/verify does not know this sample:\n%s", s, s.text)
}

// officialLibrary is its name in the registries.
var officialLibrary = regexp.MustCompile(`\bstandard-?webhooks\b`)

// samples returns all blocks of the documents, in their order.
func samples(t *testing.T) (all []sample) {
	t.Helper()
	eachDocument(t, func(file string, source []byte, n ast.Node) {
		block, ok := n.(*ast.FencedCodeBlock)
		if !ok || block.Lines().Len() == 0 {
			return
		}
		info := ""
		if block.Info != nil {
			info = string(block.Info.Value(source))
		}
		syntax, _, _ := strings.Cut(info, " ") // a file's name may follow
		line := 1 + bytes.Count(source[:block.Lines().At(0).Start], []byte("\n"))
		all = append(all, sample{file, line, syntax, string(block.Lines().Value(source))})
	})
	if len(all) < 90 {
		t.Fatalf("%d samples; are they read?", len(all))
	}
	return all
}

// eachDocument calls do with every node of every document that the service serves.
func eachDocument(t *testing.T, do func(file string, source []byte, n ast.Node)) {
	t.Helper()
	for _, pattern := range []string{"*.md", "verify/*.md"} {
		for _, file := range must[[]string](t)(fs.Glob(docs.Files, pattern)) {
			source := must[[]byte](t)(docs.Files.ReadFile(file))
			parser := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser()
			root := parser.Parse(text.NewReader(source))
			_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
				if entering {
					do(file, source, n)
				}
				return ast.WalkContinue, nil
			})
		}
	}
}

// commandsParse checks each command line of a sample: the program has the command and its flags.
func commandsParse(t *testing.T, parser *kong.Kong, s sample) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(s.text, "\\\n", " ")) {
		line, _, _ = strings.Cut(substitution.ReplaceAllString(line, "x"), " #")
		words := shellWord.FindAllString(strings.TrimPrefix(line, "$ "), -1)
		for len(words) > 0 && strings.HasPrefix(words[0], "VERIFYD_") {
			words = words[1:]
		}
		if len(words) > 3 && words[0] == "sudo" && words[1] == "-u" {
			words = words[3:]
		}
		if len(words) > 1 && words[0] == "verifyd" {
			if err := knows(parser, words[1:]); err != nil {
				t.Errorf("%s: %q: %v", s, strings.TrimSpace(line), err)
			}
		}
	}
}

var substitution = regexp.MustCompile(`\$\([^)]*\)`)

// knows returns what is wrong with a command line, without running it. Arguments may be missing.
func knows(parser *kong.Kong, words []string) error {
	ctx, err := kong.Trace(parser, words)
	if err != nil {
		return err
	}
	return ctx.Error
}

// Commands in the text exist in the program, too.
func TestCommandsInTheText(t *testing.T) {
	t.Parallel()
	parser := must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard)))
	spans := 0
	eachDocument(t, func(file string, source []byte, n ast.Node) {
		span, ok := n.(*ast.CodeSpan)
		if !ok {
			return
		}
		var b strings.Builder
		for c := span.FirstChild(); c != nil; c = c.NextSibling() {
			if part, ok := c.(*ast.Text); ok {
				_, _ = b.Write(part.Segment.Value(source))
			}
		}
		words := shellWord.FindAllString(strings.ReplaceAll(b.String(), " N", " 1"), -1)
		if len(words) < 2 || words[0] != "verifyd" {
			return
		}
		spans++
		if err := knows(parser, words[1:]); err != nil {
			t.Errorf("%s: %q: %v", file, strings.Join(words, " "), err)
		}
	})
	if spans < 100 {
		t.Errorf("only %d commands", spans)
	}
}

// testsOfTheRepository is the code of all tests.
func testsOfTheRepository(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		_, _ = code.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}

// sampleRig runs samples: a service with an account, a working folder, and verifyd on the path.
type sampleRig struct {
	*rig

	work    string
	env     []string
	samples []sample // all of them
	said    string   // what the last of them printed
	program string   // of Go, of which those in Go are parts
}

func newSampleRig(t *testing.T) *sampleRig {
	t.Helper()
	p := &sampleRig{rig: boot(t), work: t.TempDir()}
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", childVariable, must[string](t)(os.Executable()))
	if err := os.WriteFile(filepath.Join(bin, "verifyd"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "VERIFYD_") && !strings.HasPrefix(v, "PATH=") {
			p.env = append(p.env, v)
		}
	}
	p.env = append(p.env, "PATH="+bin+":"+os.Getenv("PATH"), "API_KEY="+p.apiKey,
		"VERIFYD_API_KEY="+p.apiKey, "VERIFYD_SIGNING_SECRET="+p.secret,
		"VERIFYD_DATA_DIR="+p.Config.Store.DataDir)
	return p
}

// command prepares a sample for the shell, with the placeholders replaced.
func (p *sampleRig) command(t *testing.T, s sample, pairs ...string) *exec.Cmd {
	t.Helper()
	pairs = append(pairs, "https://verify.example.com", p.Base)
	c := exec.CommandContext(t.Context(), "sh", "-eu", "-c", strings.NewReplacer(pairs...).Replace(s.text))
	c.Dir, c.Env = p.work, p.env
	return c
}

// sh runs a sample and returns what it printed.
func (p *sampleRig) sh(t *testing.T, s sample, pairs ...string) string {
	t.Helper()
	c := p.command(t, s, pairs...)
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", s, err, &out, &errOut)
	}
	p.said = out.String()
	return p.said
}
