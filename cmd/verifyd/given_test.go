package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// packaged writes the configuration that packages install, with its store in a folder of the test, and
// without the comment signs before the settings of the network if it is filled in.
func packaged(t *testing.T, filledIn bool) (file string) {
	t.Helper()
	dir := t.TempDir()
	text := string(must[[]byte](t)(os.ReadFile(filepath.FromSlash("../../docs/release/package/config.yaml"))))
	text = strings.Replace(text, "/var/lib/verifyd", filepath.Join(dir, "store"), 1)
	if filledIn {
		text = regexp.MustCompile(`(?m)^#(network_)`).ReplaceAllString(text, "$1")
	}
	file = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What is missing in the configuration as packages install it is named by the file and its own members, not
// by variables that its reader does not use.
func TestUneditedConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	file := packaged(t, false)
	for _, command := range []string{"check", "serve"} {
		code, out, errOut := verifyd(t, command, "--config", file)
		if code == 0 {
			t.Errorf("%s accepts it", command)
		}
		said := out + errOut
		expect(t, said, "network_issuer in "+file, "no identity network is configured",
			"set network_kind, such as discord", "network_client_secret", "networks_file")
		if strings.Contains(said, "VERIFYD_NETWORK_KIND") || strings.Contains(said, "VERIFYD_NETWORKS_FILE") {
			t.Errorf("%s names variables: %s", command, said)
		}
	}
}

// A secret that is still what samples show is refused, and named.
func TestSecretsThatWereNotFilledIn(t *testing.T) {
	t.Parallel()
	file := packaged(t, true)
	_, out, _ := verifyd(t, "check", "--config", file)
	expect(t, out, "network_client_secret in "+file, "it was not filled in")
	networks := filepath.Join(t.TempDir(), "networks.yaml")
	if err := os.WriteFile(networks, []byte("- {kind: discord, client_id: c, client_secret: …}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	err := serveFails(t, "--networks-file", networks, "--data-dir", filepath.Join(t.TempDir(), "store"))
	expect(t, err, "VERIFYD_NETWORKS_FILE (--networks-file)", "network discord: client_secret",
		"it was not filled in")
}

// A command that prints what to run next prints it with the settings that it was called with, so that it is
// about the same store; secrets are not repeated.
func TestNextCommandsHaveTheSettings(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "a store in a folder")
	file := packaged(t, false)
	code, _, said := verifyd(t, "account", "create", "--config", file, "Harbor Guild", "--new-store")
	if code != 0 {
		t.Fatal(said)
	}
	expect(t, said, "verifyd key create --config "+file+` --account "Harbor Guild"`)
	_, _, said = verifyd(t, "key", "create", "--config", file, "--account", "Pier Guild")
	expect(t, said, "verifyd account create --config "+file+` "Pier Guild"`)
	_, out, _ := verifyd(t, "check", "--config", file, "--networks-file", "/nowhere")
	if strings.Contains(out, "networks_file in "+file) {
		t.Errorf("what is given on the command line is not in the file: %s", out)
	}

	folder, key := filepath.Join(t.TempDir(), "a folder"), secretbox.NewKey().Encode()
	code, _, said = verifyd(t, "account", "create", "Harbor Guild", "--new-store", "--data-dir", folder,
		"--secret-key", key)
	if code != 0 {
		t.Fatal(said)
	}
	expect(t, said, "verifyd key create --data-dir '"+folder+`' --account "Harbor Guild"`)
	if strings.Contains(said, key) {
		t.Errorf("the master key is repeated: %s", said)
	}
}
