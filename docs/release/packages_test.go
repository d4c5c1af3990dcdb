package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
)

// debian is a Debian in a folder, where packages are installed as root.
type debian struct{ root string }

// newDebian returns a minimal Debian with the package's dependencies. It is created once, and kept next to
// Go's build cache.
func newDebian(t *testing.T) debian {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this proof needs root, who alone can install packages")
	}
	archive, err := debianArchive(needs(t, "debootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	d := debian{t.TempDir()}
	run(t, "tar", "-C", d.root, "-xf", archive)
	if err := os.Chmod(d.root, 0o755); err != nil { // the service's user goes through it
		t.Fatal(err)
	}
	return d
}

// debianMade creates the archive once for all tests.
var debianMade sync.Mutex

func debianArchive(debootstrap string) (archive string, err error) {
	debianMade.Lock()
	defer debianMade.Unlock()
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return "", err
	}
	release, err := exec.Command("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").Output()
	if err != nil {
		return "", err
	}
	suite := strings.TrimSpace(string(release))
	archive = filepath.Join(strings.TrimSpace(string(cache)), "verifyd-debian-"+suite+".tar")
	if _, err := os.Stat(archive); !errors.Is(err, fs.ErrNotExist) {
		return archive, err
	}
	dir, err := os.MkdirTemp("", "verifyd-debian-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, part := filepath.Join(dir, "root"), archive+".part"
	for _, line := range [][]string{
		{debootstrap, "--variant=minbase", "--include=ca-certificates", suite, root},
		{"tar", "-C", root, "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*",
			"--exclude=./proc/*", "--exclude=./sys/*", "-cf", part, "."},
	} {
		if said, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", line[0], err, said)
		}
	}
	return archive, os.Rename(part, archive)
}

// command is a program in that Debian, run by one of its users.
func (d debian) command(ctx context.Context, user string, line ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: d.root, Credential: d.credential(user)}
	return cmd
}

// credential returns the numbers of a user there; nil is root.
func (d debian) credential(user string) *syscall.Credential {
	if user == "root" {
		return nil
	}
	passwd, _ := os.ReadFile(filepath.Join(d.root, "etc/passwd"))
	for line := range strings.Lines(string(passwd)) {
		if fields := strings.Split(line, ":"); fields[0] == user {
			uid, _ := strconv.ParseUint(fields[2], 10, 32)
			gid, _ := strconv.ParseUint(fields[3], 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 1 << 30, Gid: 1 << 30} // it does not exist: what is run fails
}

// as runs a program there that must succeed, and returns its output.
func (d debian) as(t *testing.T, user string, line ...string) string {
	t.Helper()
	cmd := d.command(t.Context(), user, line...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s%s", line, err, out, said.String())
	}
	return strings.TrimSpace(string(out))
}

// path returns the path of a file of that Debian on this system.
func (d debian) path(name string) string { return filepath.Join(d.root, name) }

// owned fails unless a file has the owner and mode: "root:verifyd 640", or "" if it must not exist.
func (d debian) owned(t *testing.T, name, want string) {
	t.Helper()
	got := ""
	if _, err := os.Lstat(d.path(name)); err == nil {
		got = d.as(t, "root", "stat", "--format=%U:%G %a", name)
	}
	if got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// put puts a file of this machine there.
func (d debian) put(t *testing.T, path string) (name string) {
	t.Helper()
	name = "/root/" + filepath.Base(path)
	if err := os.WriteFile(d.path(name), read(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// unit has the settings of the package's unit.
type unit map[string][]string

func (d debian) unit(t *testing.T) unit {
	t.Helper()
	u := unit{}
	for line := range strings.Lines(string(read(t, d.path("usr/lib/systemd/system/verifyd.service")))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			u[name] = append(u[name], value)
		}
	}
	return u
}

// start runs the unit's command, as its user and with its environment, until the test ends or it is stopped.
func (d debian) start(t *testing.T) (stop func()) {
	t.Helper()
	u := d.unit(t)
	user := u["User"][0]
	d.owned(t, "/var/lib/"+u["StateDirectory"][0], user+":"+u["Group"][0]+" 700")
	check := d.command(t.Context(), user, strings.Fields(u["ExecStartPre"][0])...)
	check.Env = append(check.Env, u["Environment"]...)
	if said, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	serve := d.command(t.Context(), user, strings.Fields(u["ExecStart"][0])...)
	serve.Env = append(serve.Env, u["Environment"]...)
	var log bytes.Buffer
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("serve: %v: %s", err, log.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// integrator is a receiver, and what its owner knows of the service.
type integrator struct {
	server       *httptest.Server
	receiver     atomic.Pointer[client.Receiver]
	got          chan client.Result
	base, admin  string
	key, signing string
}

// configure writes a configuration as an operator would, for a simulated network and a receiver on this
// machine.
func (d debian) configure(t *testing.T) *integrator {
	t.Helper()
	i := &integrator{got: make(chan client.Result, 1), base: natstest.Address(t), admin: natstest.Address(t)}
	i.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.receiver.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(i.server.Close)
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	config := fmt.Sprintf("data_dir: /var/lib/verifyd\nlisten: %s\nadmin_listen: %s\nbase_url: http://%s\n"+
		"dev_network: true\ncallback_allow_cidrs: 127.0.0.0/8\ncallback_ca_file: /etc/verifyd/receiver.pem\n",
		i.base, i.admin, i.base)
	for name, text := range map[string]string{"config.yaml": config, "receiver.pem": string(roots)} {
		if err := os.WriteFile(d.path("etc/verifyd/"+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// enroll creates an account and its key with the operator's commands.
func (i *integrator) enroll(t *testing.T, d debian) {
	t.Helper()
	const config = "--config=/etc/verifyd/config.yaml"
	d.as(t, "verifyd", "/usr/bin/verifyd", "account", "create", config, "Harbor Guild")
	i.key = d.as(t, "verifyd", "/usr/bin/verifyd", "key", "create", config, "--account", "Harbor Guild")
	i.signing = d.as(t, "verifyd", "/usr/bin/verifyd", "account", "secret", config, "Harbor Guild")
	receiver, err := client.NewReceiver([]string{i.signing}, func(_ context.Context, r client.Result) error {
		i.got <- r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	i.receiver.Store(receiver)
	c, err := client.New("http://"+i.base, i.key)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the key is known", func() bool { // the service polls for it
		_, err := c.Usage(t.Context(), time.Now())
		return err == nil
	})
}

func (i *integrator) await(t *testing.T) {
	t.Helper()
	natstest.Await(t, "the service is ready", func() bool {
		response, err := http.Get("http://" + i.admin + "/readyz")
		if err != nil {
			return false
		}
		return errors.Join(response.Body.Close()) == nil && response.StatusCode == http.StatusOK
	})
}

// verify runs a session from its start to its callback, and returns it.
func (i *integrator) verify(t *testing.T) client.Started {
	t.Helper()
	c, err := client.New("http://"+i.base, i.key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Start(t.Context(), client.Verification{
		Platform: "discord", PlatformUserID: demo.User, CallbackURL: i.server.URL + "/verified",
	})
	if err != nil {
		t.Fatal(err)
	}
	browser := demo.NewBrowser()
	page, err := browser.Open(t.Context(), s.VerifyURL)
	for _, button := range []string{"dev", "sign-in"} {
		if err == nil {
			page, err = browser.Press(t.Context(), page, button)
		}
	}
	if err != nil || page.Title() != "You are verified" {
		t.Fatalf("%v: %+v", err, page)
	}
	if r := <-i.got; r.PlatformUserID != demo.User || !r.Verified {
		t.Errorf("the callback says %+v", r)
	}
	return s
}

// refusesRoot runs commands as root on the store of a stopped service: they refuse and write nothing. What
// such a command of an older build has left there is named, with the command that gives it back.
func (d debian) refusesRoot(t *testing.T) {
	t.Helper()
	const witness = "/var/lib/verifyd/witness.json"
	run := func(user string, line ...string) (string, error) {
		said, err := d.command(t.Context(), user, append([]string{"/usr/bin/verifyd"},
			append(line, "--config=/etc/verifyd/config.yaml")...)...).CombinedOutput()
		return string(said), err
	}
	for _, line := range [][]string{
		{"account", "list"}, {"account", "create", "Pier Guild"}, {"backup", "/root/backup"}, {"serve"},
		{"check"},
	} {
		said, err := run("root", line...)
		if err == nil || !strings.Contains(said, "sudo -u verifyd verifyd") {
			t.Errorf("%q as root: %v: %s", line, err, said)
		}
	}
	d.owned(t, witness, "verifyd:verifyd 600")
	if said, err := run("verifyd", "check"); err != nil {
		t.Errorf("check after that: %v: %s", err, said)
	}
	const giveBack = `chown -R verifyd:verifyd "/var/lib/verifyd" && chmod -R u+rwX "/var/lib/verifyd"`
	d.as(t, "root", "chown", "root:root", witness)
	for _, line := range [][]string{{"check"}, {"serve"}, {"account", "list"}} {
		if said, err := run("verifyd", line...); err == nil || !strings.Contains(said, "witness.json") ||
			!strings.Contains(said, giveBack) {
			t.Errorf("%q with a file of root: %v: %s", line, err, said)
		}
	}
	d.as(t, "root", "sh", "-c", giveBack)
	if said, err := run("verifyd", "check"); err != nil {
		t.Errorf("check after %s: %v: %s", giveBack, err, said)
	}
}

// nextBuilt is the result of next, once for all tests.
var (
	nextMade  sync.Mutex
	nextBuilt *builder
)

// next returns packages of a higher version, of the same binaries and with another configuration.
func (b *builder) next(t *testing.T) *builder {
	t.Helper()
	nextMade.Lock()
	defer nextMade.Unlock()
	if nextBuilt != nil {
		return nextBuilt
	}
	n := &builder{
		source: b.source, targets: b.targets, out: filepath.Join(b.out, "next"), log: b.log,
		binaries: b.binaries, extras: b.extras,
	}
	n.version, n.root = "99.0.0", t.TempDir()
	copyTree(t, n.root)
	config := filepath.Join(n.root, "docs/release/package/config.yaml")
	changed := append(read(t, config), "#another_setting: of a later version\n"...)
	err := errors.Join(os.Mkdir(n.out, 0o755), os.WriteFile(config, changed, 0o600), n.packages())
	if err != nil {
		t.Fatal(err)
	}
	nextBuilt = n
	return n
}

// The package for Debian: installed in a clean system, configured, its service run as its unit says, a
// session from end to end; then upgraded, removed and purged.
func TestDebian(t *testing.T) {
	t.Parallel()
	b := release(t)
	d := newDebian(t)
	config := func() string { return string(read(t, d.path("etc/verifyd/config.yaml"))) }
	d.as(t, "root", "dpkg", "--install", d.put(t, b.file(t, ".deb")))
	d.owned(t, "/etc/verifyd/config.yaml", "root:verifyd 640")
	d.owned(t, "/var/lib/verifyd", "verifyd:verifyd 700")
	d.as(t, "root", "dpkg", "--verify", "verifyd")
	if got := d.as(t, "root", "/usr/bin/verifyd", "version"); !strings.Contains(got, b.commit) {
		t.Errorf("version: %s", got)
	}
	if said, err := d.command(t.Context(), "verifyd", "/usr/bin/verifyd", "check",
		"--config=/etc/verifyd/config.yaml").CombinedOutput(); err == nil ||
		!strings.Contains(string(said), "no identity network is configured") {
		t.Errorf("check of the configuration as it comes: %v: %s", err, said)
	}

	i := d.configure(t)
	d.owned(t, "/etc/verifyd/config.yaml", "root:verifyd 640")
	stop := d.start(t)
	i.await(t)
	i.enroll(t, d)
	s := i.verify(t)
	stop()
	d.refusesRoot(t)

	mine := config()
	// As unattended upgrades do it: if both have changed the configuration, the operator's stays.
	d.as(t, "root", "dpkg", "--force-confdef", "--force-confold", "--install",
		d.put(t, b.next(t).file(t, ".deb")))
	d.owned(t, "/etc/verifyd/config.yaml.dpkg-dist", "root:verifyd 640")
	if got := d.as(t, "root", "dpkg-query", "--show", "--showformat=${Version}", "verifyd"); got != "99.0.0" {
		t.Errorf("after the upgrade the version is %s", got)
	}
	if config() != mine {
		t.Errorf("after the upgrade the configuration is\n%s", config())
	}
	d.owned(t, "/etc/verifyd/config.yaml", "root:verifyd 640")
	stop = d.start(t)
	i.await(t)
	c, err := client.New("http://"+i.base, i.key)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := c.Session(t.Context(), s.Session); err != nil || read.State != client.Verified {
		t.Errorf("after the upgrade the session is %+v, %v", read, err)
	}
	stop()

	d.as(t, "root", "dpkg", "--remove", "verifyd")
	d.owned(t, "/usr/bin/verifyd", "")
	d.owned(t, "/var/lib/verifyd/secret.key", "verifyd:verifyd 600")
	if config() != mine {
		t.Error("the removal took the configuration")
	}
	d.as(t, "root", "dpkg", "--purge", "verifyd")
	d.owned(t, "/var/lib/verifyd", "")
	d.owned(t, "/etc/verifyd/config.yaml", "")
	d.owned(t, "/etc/verifyd/receiver.pem", "root:root 644") // the operator's own
	if d.credential("verifyd").Uid >= 1<<16 {
		t.Error("the purge took the user")
	}
}

// The package for rpm, in the same steps; the system below it does not matter to rpm.
func TestRPM(t *testing.T) {
	t.Parallel()
	b := release(t)
	rpm := needs(t, "rpm")
	d := newDebian(t)
	first, second := b.file(t, ".rpm"), b.next(t).file(t, ".rpm")
	do := func(args ...string) string {
		t.Helper()
		return output(t, rpm, append([]string{"--root", d.root, "--nosignature"}, args...)...)
	}
	if said := output(t, rpm, "--checksig", "--nosignature", first); !strings.Contains(said, "digests OK") {
		t.Errorf("checksig: %s", said)
	}
	// Its dependencies are not among this system's rpm packages.
	do("--install", "--nodeps", first)
	d.owned(t, "/etc/verifyd/config.yaml", "root:verifyd 640")
	d.owned(t, "/var/lib/verifyd", "verifyd:verifyd 700")
	do("--verify", "--nodeps", "verifyd")
	i := d.configure(t)
	mine := read(t, d.path("etc/verifyd/config.yaml"))
	stop := d.start(t)
	i.await(t)
	stop()
	do("--upgrade", "--nodeps", second)
	if got := do("--query", "--queryformat", "%{VERSION}", "verifyd"); got != "99.0.0" {
		t.Errorf("after the upgrade the version is %s", got)
	}
	if !bytes.Equal(read(t, d.path("etc/verifyd/config.yaml")), mine) {
		t.Error("the upgrade took the configuration")
	}
	d.owned(t, "/etc/verifyd/config.yaml.rpmnew", "root:verifyd 640")
	if said := do("--erase", "verifyd"); !strings.Contains(said, "the store in /var/lib/verifyd is left") {
		t.Errorf("the removal says %s", said)
	}
	d.owned(t, "/usr/bin/verifyd", "")
	d.owned(t, "/usr/share/doc/verifyd", "")
	d.owned(t, "/var/lib/verifyd/secret.key", "verifyd:verifyd 600")
	if !bytes.Equal(read(t, d.path("etc/verifyd/config.yaml.rpmsave")), mine) {
		t.Error("the removal took the configuration")
	}
}

// systemd finds nothing wrong with the unit, and reports a low exposure.
func TestUnit(t *testing.T) {
	t.Parallel()
	text := string(read(t, "package/verifyd.service"))
	if strings.Count(text, "/usr/bin/verifyd ") != 2 {
		t.Fatal("the unit does not run /usr/bin/verifyd twice")
	}
	if !strings.Contains(text, "\nLimitCORE=0\n") {
		t.Error("a core dump may hold secrets")
	}
	analyze := needs(t, "systemd-analyze")
	file := filepath.Join(t.TempDir(), "verifyd.service")
	// systemd requires that the program exists.
	text = strings.ReplaceAll(text, "/usr/bin/verifyd ", "/bin/true ")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := output(t, analyze, "verify", "--man=no", file); said != "" {
		t.Errorf("systemd-analyze verify: %s", said)
	}
	for threshold, passes := range map[string]bool{"20": true, "1": false} { // tenths of the exposure
		said, err := exec.Command(analyze, "security", "--no-pager", "--offline=true",
			"--threshold="+threshold, file).CombinedOutput()
		if (err == nil) != passes || !strings.Contains(string(said), "Overall exposure level") {
			t.Errorf("exposure of at most %s tenths: %v: %s", threshold, err, said)
		}
	}
}

// systemCalls returns the system calls that the unit allows.
func systemCalls(t *testing.T) (names []string) {
	t.Helper()
	analyze := needs(t, "systemd-analyze")
	var members func(set string) []string
	members = func(set string) (all []string) {
		for i, line := range strings.Split(output(t, analyze, "syscall-filter", "--no-pager", set), "\n") {
			switch line = strings.TrimSpace(line); {
			case i == 0 || line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "@"):
				all = append(all, members(line)...)
			default:
				all = append(all, line)
			}
		}
		return all
	}
	for line := range strings.Lines(string(read(t, "package/verifyd.service"))) {
		filter, ok := strings.CutPrefix(strings.TrimSpace(line), "SystemCallFilter=")
		if !ok {
			continue
		}
		sets, without := strings.CutPrefix(filter, "~")
		for set := range strings.FieldsSeq(sets) {
			of := members(set)
			if without {
				names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(of, name) })
			} else {
				names = append(names, of...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
