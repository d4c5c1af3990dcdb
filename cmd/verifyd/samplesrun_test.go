package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/client"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest/prove"
)

func tryStart(t *testing.T, p *sampleRig, s sample) {
	prove.Program(t, "curl, with which the documents show requests", "curl")
	expect(t, p.sh(t, s), `"verify_url":"`+p.Base)
}

// tryAnswer compares an answer in the documents with what the sample before it got.
func tryAnswer(t *testing.T, p *sampleRig, s sample) {
	var shown, actual map[string]any
	if err := json.Unmarshal([]byte(s.text), &shown); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if err := json.Unmarshal([]byte(p.said), &actual); err != nil {
		t.Fatalf("%s: %v in %s", s, err, p.said)
	}
	expectShape(t, s.String(), shown, actual)
}

// expectShape looks for each member of a document in another one, with a value of the same type.
func expectShape(t *testing.T, where string, shown, actual any) {
	t.Helper()
	switch v := shown.(type) {
	case map[string]any:
		r, _ := actual.(map[string]any)
		for name, member := range v {
			if _, ok := r[name]; !ok {
				t.Errorf("%s.%s is not in a real answer", where, name)
				continue
			}
			expectShape(t, where+"."+name, member, r[name])
		}
	case []any:
		r, _ := actual.([]any)
		if len(r) == 0 {
			t.Errorf("%s is empty in a real answer", where)
			return
		}
		expectShape(t, where+"[]", v[0], r[0])
	default:
		if fmt.Sprintf("%T", shown) != fmt.Sprintf("%T", actual) {
			t.Errorf("%s is a %T, in a real answer a %T", where, shown, actual)
		}
	}
}

func tryKeys(t *testing.T, p *sampleRig, s sample) {
	var list struct{ Keys []struct{ ID string } }
	_, out, errOut := p.run(t, "key", "list", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Keys) == 0 {
		t.Fatalf("%v: %s%s", err, out, errOut)
	}
	keys := strings.Fields(p.sh(t, s, "key_5ah3gk7zq2mxw4td", list.Keys[0].ID,
		"2027-01-31", time.Now().AddDate(0, 2, 0).Format(time.DateOnly)))
	if len(keys) != 2 || !apiKeyForm.MatchString(keys[0]) || !apiKeyForm.MatchString(keys[1]) {
		t.Errorf("%s prints %q", s, keys)
	}
}

// tryCallback lets a user sign in, and compares the callback with the one in the documents.
func tryCallback(t *testing.T, p *sampleRig, s sample) {
	started := p.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, started.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	posted := <-p.inbox.got
	p.api().until(t, started.Session, "delivered")
	p.env = append(p.env, "SESSION="+started.Session)
	head, body, _ := strings.Cut(s.text, "\n\n")
	shown := must[*http.Request](t)(http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\n\n"))))
	for name := range shown.Header {
		if a, b := shape(shown.Header.Get(name)), shape(posted.Header.Get(name)); a != b {
			t.Errorf("%s: %s has the form %s, in a real callback %s", s, name, a, b)
		}
	}
	if len(shown.Header) < 4 {
		t.Errorf("%s has the headers %v", s, shown.Header)
	}
	p.said = string(posted.Body)
	tryAnswer(t, p, sample{file: s.file, line: s.line, text: body})
}

var (
	digits = regexp.MustCompile(`^\d{10}$`)
	ids    = regexp.MustCompile(`^cb_[a-z2-7]{32}$`)
	// signed is an entry of webhook-signature; a long one may be cut short.
	signed = regexp.MustCompile(`\b(v1a?),([A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==|[A-Za-z0-9+/]+…)`)
)

// shape is the form of a header's value, or the value.
func shape(value string) string {
	for _, form := range []*regexp.Regexp{digits, ids} {
		if form.MatchString(value) {
			return form.String()
		}
	}
	return signed.ReplaceAllString(value, "$1,signature")
}

// tryConfirm lets a user sign in for a session that requires a code, and confirms it as the document does.
func tryConfirm(t *testing.T, p *sampleRig, s sample) {
	c := must[*client.Client](t)(client.New(p.Base, p.apiKey))
	started := must[client.Started](t)(c.Start(t.Context(), client.Verification{
		Platform: "discord", PlatformUserID: "sailor_42", CallbackURL: p.inbox.CallbackURL(),
		Binding: "code",
	}))
	b := demo.NewBrowser()
	page := must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, started.VerifyURL), "sign-in"))
	expect(t, p.sh(t, s, "$SESSION", started.Session, "k7m-2qx", page.Code()), `"state":"verified"`)
	<-p.inbox.got
}

func tryPublicKeys(t *testing.T, p *sampleRig, s sample) { expect(t, p.sh(t, s), `"whpk_`) }

func tryRead(t *testing.T, p *sampleRig, s sample) { expect(t, p.sh(t, s), `"state":"verified"`) }

// tryGo builds one program from all Go samples of the document, and runs it against the service.
func tryGo(t *testing.T, p *sampleRig, s sample) {
	prove.Program(t, "go, in which integrators write", "go")
	var parts strings.Builder
	for _, other := range p.samples {
		if other.file == s.file && other.syntax == "go" {
			parts.WriteString(other.text)
		}
	}
	body := parts.String()
	body = strings.Replace(body, "…\n", "if err != nil {\n\tlog.Fatal(err)\n}\n", 1)
	body = strings.Replace(body, "…\n", "_ = f\n", 1)
	p.program = body
	const frame = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"verifyd/edge/client"
)

// What an integrator has.
var (
	ctx     = context.Background()
	mux     = http.NewServeMux()
	members roles
	table   seen
	message = struct{ AuthorID, Text string }{"sailor_42", "k7m-2qx"}
	secrets = []string{os.Getenv("VERIFYD_SIGNING_SECRET")}
)

type roles struct{}

func (roles) SetVerified(context.Context, string, string, bool) error { return nil }

type seen struct{}

func (seen) Begin(context.Context, string) (client.Sighting, error)  { return client.SeenNew, nil }
func (seen) End(context.Context, string, bool) error { return nil }

func later(time.Duration) {}

func handle(context.Context, client.Result) error { return nil }

func main() {
%s	fmt.Println("session", started.Session)
}
`
	file, bin := filepath.Join(p.work, "integrator.go"), filepath.Join(p.work, "integrator")
	source := strings.ReplaceAll(fmt.Sprintf(frame, body), "https://verify.example.com", p.Base)
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	// From this folder, so that the client is this module's.
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, file)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", s, err, out, source)
	}
	c := exec.CommandContext(t.Context(), bin)
	c.Env = p.env
	out, err := c.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^session \S{43}$`).Match(out) ||
		!bytes.Contains(out, []byte("started ")) {
		t.Errorf("%s: %v\n%s", s, err, out)
	}
}

// inGo is for a sample that is a part of tryGo's program.
func inGo(t *testing.T, p *sampleRig, s sample) {
	first, _, _ := strings.Cut(s.text, "\n")
	if p.program != "" && !strings.Contains(p.program, first) {
		t.Errorf("%s is no part of the program:\n%s", s, p.program)
	}
}

// tryKits asks for each address in the lines that install SDKs.
func tryKits(t *testing.T, p *sampleRig, s sample) {
	found := regexp.MustCompile(`https://\S+`).FindAllString(s.text, -1)
	for _, address := range found {
		fromService(t, p.Base+strings.TrimPrefix(address, "https://verify.example.com"))
	}
	if len(found) != 4 {
		t.Errorf("%s has %d addresses", s, len(found))
	}
	expect(t, s.text, "/sdk/go@v")
}

// tryReceiver judges a receiver that checks no signatures, like the one in the document's report.
func tryReceiver(t *testing.T, p *sampleRig, s sample) {
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	defer careless.Close()
	// a failed check is exit code 1
	p.sh(t, sample{file: s.file, line: s.line, text: strings.TrimSpace(s.text) + " && exit 9 || test $? = 1"},
		"whsec_…", p.secret, "https://bot.example.com/verified", careless.URL+" --allow-private")
}

// tryReport compares the rows of a report with those of the one that was made.
func tryReport(t *testing.T, p *sampleRig, s sample) {
	gaps := regexp.MustCompile(`\s{2,}`)
	rows := 0
	for line := range strings.Lines(s.text) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		if !slices.Contains([]string{"pass", "FAIL", "look"}, word) {
			continue
		}
		rows++
		expect(t, p.said, word+"  "+gaps.Split(rest, 2)[0])
	}
	expect(t, p.said, "Receiver ",
		"Anybody who knows the URL could verify anybody. Check webhook-signature first")
	if rows < 5 {
		t.Errorf("%s has %d rows", s, rows)
	}
}

func tryListen(t *testing.T, p *sampleRig, s sample) {
	c := p.command(t, s, "verifyd listen", "exec verifyd listen", "vfytest_…", p.testKey(t))
	said := &buffer{}
	c.Stdout, c.Stderr = said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.said = awaitText(t.Context(), said, "Listening.")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%s: %v: %s", s, err, said.String())
	}
}

// tryListened compares the line with which verifyd listen begins.
func tryListened(t *testing.T, p *sampleRig, s sample) {
	line, _, _ := strings.Cut(s.text, "\n")
	_, words, _ := strings.Cut(line, "  ")
	expect(t, p.said, strings.ReplaceAll(words, "https://verify.example.com", p.Base))
}

func tryNetworks(t *testing.T, _ *sampleRig, s sample) {
	if all, err := netsettings.ParseFile([]byte(s.text)); err != nil || len(all) != 4 {
		t.Errorf("%s: %d networks, %v", s, len(all), err)
	}
}

// tryProxy checks what a proxy must do right for this service.
func tryProxy(t *testing.T, p *sampleRig, s sample) {
	expect(t, s.text, "proxy_set_header X-Forwarded-For", "proxy_set_header Host", "proxy_buffering off",
		"proxy_pass http://127.0.0.1:8080")
	m := regexp.MustCompile(`proxy_read_timeout (\d+)s`).FindStringSubmatch(s.text)
	if m == nil {
		t.Fatalf("%s has no proxy_read_timeout", s)
	}
	// The longest wait that the service grants is shorter.
	wait := "/sessions/" + p.begin(t).Session + "?wait=" + m[1]
	if status, _, body := p.api().call(t, http.MethodGet, wait, ""); status != http.StatusBadRequest {
		t.Errorf("%s: waits of %s s are granted: %d %s", s, m[1], status, body)
	}
	if n := must[int](t)(strconv.Atoi(m[1])); n > 120 {
		t.Errorf("%s: %d s", s, n)
	}
}

func tryPrepare(t *testing.T, p *sampleRig, s sample) {
	to := filepath.Join(p.work, "prepared")
	p.sh(t, s, "/etc/verifyd", to)
	for _, role := range []string{"edge", "dispatcher", "operator", "nats"} {
		if _, err := os.Stat(filepath.Join(to, role)); err != nil {
			t.Error(err)
		}
	}
}

// tryCompose checks the profiles, services and variables in docker-compose.yml.
func tryCompose(t *testing.T, _ *sampleRig, s sample) {
	text := must[[]byte](t)(os.ReadFile("../../docker-compose.yml"))
	var file struct {
		Services map[string]struct{ Profiles []string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`--profile (\S+)`).FindAllStringSubmatch(s.text, -1) {
		found := false
		for _, service := range file.Services {
			found = found || slices.Contains(service.Profiles, m[1])
		}
		if !found {
			t.Errorf("%s: no service has the profile %s", s, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`compose (?:run --rm|exec) (\S+)`).FindAllStringSubmatch(s.text, -1) {
		if _, ok := file.Services[m[1]]; !ok {
			t.Errorf("%s: there is no service %s", s, m[1])
		}
	}
	for _, name := range variableNames.FindAllString(s.text, -1) {
		expect(t, string(text), "${"+name)
	}
	parser := must[*kong.Kong](t)(newParser(kong.Writers(io.Discard, io.Discard)))
	for _, m := range regexp.MustCompile(`(?:operator|/verifyd) ([a-z].*?) *(?:#.*)?\n`).
		FindAllStringSubmatch(s.text, -1) {
		if err := knows(parser, shellWord.FindAllString(m[1], -1)); err != nil {
			t.Errorf("%s: verifyd %s: %v", s, m[1], err)
		}
	}
}

// kubectl replaces the command, since there is no cluster: the files must exist, and the real command, if
// installed, checks what is created.
const kubectl = `#!/bin/sh
for word; do
  case $word in
  --from-file=* | --cert=* | --key=*) test -e "${word#*=}" || { echo "$word is not there" >&2; exit 1; } ;;
  esac
  last=$word
done
case " $* " in
*" create "*) if [ -n "$KUBECTL" ]; then exec "$KUBECTL" "$@" --dry-run=client --output=name; fi ;;
*" apply -f "* | *" apply -k "*) test -e "$last" || { echo "$last is not there" >&2; exit 1; } ;;
*) echo "kubectl $*: what is that?" >&2; exit 1 ;;
esac
`

func tryKubernetes(t *testing.T, p *sampleRig, s sample) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	documents := must[string](t)(filepath.Abs("../../docs"))
	if err := os.Symlink(documents, filepath.Join(p.work, "docs")); err != nil {
		t.Fatal(err)
	}
	cert := must[tls.Certificate](t)(must[*localca.Authority](t)(localca.New()).
		Issue(localca.Certificate{Hosts: []string{"verify.example.com"}}))
	key := must[[]byte](t)(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))
	place(t, filepath.Join(p.work, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: cert.Certificate[0]}))
	place(t, filepath.Join(p.work, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
		Bytes: key}))
	place(t, filepath.Join(p.work, "networks.yaml"), nil)
	c := p.command(t, s)
	program, _ := exec.LookPath("kubectl")
	for i, v := range c.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			c.Env = slices.Concat(c.Env[:i], c.Env[i+1:],
				[]string{"PATH=" + bin + ":" + path, "KUBECTL=" + program})
			break
		}
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", s, err, out)
	}
}

// tryAccounts makes an account of its own, and deletes it.
func tryAccounts(t *testing.T, p *sampleRig, s sample) {
	p.sh(t, s, "Harbor Guild", "Lake Guild")
	expect(t, p.said, p.Base+"/dashboard/link", "account.created")
	if _, out, _ := p.run(t, "account", "list"); strings.Contains(out, "Guild") &&
		(strings.Contains(out, "Lake Guild") || strings.Contains(out, "Pier Guild")) {
		t.Errorf("it is still there: %s", out)
	}
}

func tryEvent(t *testing.T, _ *sampleRig, s sample) {
	d := json.NewDecoder(strings.NewReader(s.text))
	d.DisallowUnknownFields()
	var e alarm.Event
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if e.ID == "" || e.Type == "" || e.Status == "" || e.At.IsZero() || e.Since.IsZero() || e.Detail == "" {
		t.Errorf("%s: %+v", s, e)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("%s: more follows: %v", s, err)
	}
}

func tryBackup(t *testing.T, p *sampleRig, s sample) {
	p.sh(t, s, "/backups", p.work, "2026-11-21", time.Now().Format(time.DateOnly),
		"verifyd restore", "VERIFYD_SECRET_KEY_FILE=$VERIFYD_DATA_DIR/secret.key VERIFYD_DATA_DIR="+
			filepath.Join(p.work, "restored")+" verifyd restore")
}

// tryUnits has systemd check the units: those of one block, each below a line with its name.
func tryUnits(t *testing.T, _ *sampleRig, s sample) {
	analyze := prove.Program(t, "systemd-analyze, which checks units", "systemd-analyze")
	dir, command := t.TempDir(), []string{"verify"}
	for _, unit := range strings.Split(s.text, "# verifyd-backup.")[1:] {
		ending, text, _ := strings.Cut(unit, "\n")
		path := filepath.Join(dir, "verifyd-backup."+ending)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command = append(command, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, command...).CombinedOutput()
	if len(command) != 3 || err != nil || len(out) > 0 {
		t.Errorf("%s: %d units; %v %s", s, len(command)-1, err, out)
	}
}

// tryRestore restores what tryBackup has left.
func tryRestore(t *testing.T, p *sampleRig, s sample) {
	expect(t, p.sh(t, s, "/var/tmp/trial", filepath.Join(p.work, "trial"), "/root/secret.key",
		filepath.Join(p.Config.Store.DataDir, config.SecretFile), "/var/lib/verifyd-backup/2026-11-21",
		filepath.Join(p.work, "verifyd-"+time.Now().Format(time.DateOnly))), "Harbor Guild")
}

func tryErase(t *testing.T, p *sampleRig, s sample) { expect(t, p.sh(t, s), "Harbor Guild") }
