package proc

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// The CPU time and memory of a child are its own.
func TestUsageOfAProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("skipped: this system has no /proc to ask")
	}
	cmd := exec.Command("/bin/sh", "-c",
		"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read wait; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: cmd}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if cpu, peak := p.SinceStart().Used(); cpu <= 0 || peak < 100<<10 || p.Resident() > peak {
		t.Errorf("CPU %s, %d bytes", cpu, peak)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if cpu, _ := p.SinceStart().Used(); cpu >= 0 {
		t.Errorf("a process that is gone has used %s", cpu)
	}
}

func TestStatTime(t *testing.T) {
	const stat = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 100\n"
	for times, want := range map[int]time.Duration{2: 2 * time.Second, 4: 2100 * time.Millisecond} {
		if got := statTime([]byte(stat), times); got != want {
			t.Errorf("%d times: %s, want %s", times, got, want)
		}
	}
	for _, bad := range []string{"", "42 (x) S 1 2 3", "42 (x) S 1 42 42 0 -1 4194560 100 0 0 0 a b 7 3"} {
		if got := statTime([]byte(bad), 2); got >= 0 {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
