package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"verifyd/natsconf/natstest"
)

// The image is loaded into an engine, and runs there with a read-only root, without capabilities, and with no
// more system calls than the packages' unit allows.
func TestImage(t *testing.T) {
	t.Parallel()
	b := release(t)
	if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
		t.Fatalf("this proof needs an engine of Docker that answers: %v %s", err, out)
	}
	said := output(t, "docker", "load", "--input", b.file(t, "_image.tar"))
	image := strings.TrimSpace(after(t, said, "Loaded image: "))
	t.Cleanup(func() { run(t, "docker", "image", "rm", "--force", image) })
	var inspected []struct {
		Os, Architecture string
		Config           struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(output(t, "docker", "image", "inspect", image)), &inspected); err != nil {
		t.Fatal(err)
	}
	of := inspected[0]
	if of.Os != here.os || of.Architecture != here.arch || of.Config.User != "65532:65532" ||
		of.Config.Labels[annotation+"revision"] != b.commit {
		t.Errorf("the image is %+v", of)
	}

	id := strings.TrimSpace(output(t, "docker", "create", "--read-only", "--cap-drop=ALL",
		"--security-opt=no-new-privileges", "--security-opt=seccomp="+profile(t), "--publish=127.0.0.1::8080",
		"--env=VERIFYD_DEV_NETWORK=true", image))
	t.Cleanup(func() { run(t, "docker", "rm", "--force", "--volumes", id) })
	if err := exec.Command("docker", "cp", id+":/bin/sh", t.TempDir()).Run(); err == nil {
		t.Error("there is a shell in it")
	}
	run(t, "docker", "start", id)
	natstest.Await(t, "the service in the container is healthy", func() bool {
		state := output(t, "docker", "inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", id)
		if !strings.HasPrefix(state, "running") {
			t.Fatalf("the container is %s: %s", state, output(t, "docker", "logs", id))
		}
		return strings.TrimSpace(state) == "running healthy"
	})
	address, _, _ := strings.Cut(output(t, "docker", "port", id, "8080/tcp"), "\n")
	response, err := http.Get("http://" + address + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK ||
		!strings.Contains(string(text), "/verify/init") {
		t.Errorf("%d, %v: %.100s", response.StatusCode, err, text)
	}
}

// profile writes the unit's filter of system calls in the form of container engines.
func profile(t *testing.T) (file string) {
	t.Helper()
	type rule struct {
		Names  []string `json:"names"`
		Action string   `json:"action"`
	}
	data, err := json.Marshal(map[string]any{
		"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []rule{{systemCalls(t), "SCMP_ACT_ALLOW"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
