package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
)

// parentVariable makes this test binary start a process and wait to be killed.
const parentVariable = "VERIFYD_TEST_PARENT"

func init() {
	if os.Getenv(parentVariable) == "" {
		return
	}
	child := exec.Command("sleep", "600")
	child.Stdout = os.Stdout
	ended, err := startTied(child)
	if err == nil {
		fmt.Println("started")
		err = <-ended
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// tie makes the kernel kill a process when the thread ends that starts it. Another signal that was chosen
// stays.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}

// A process that tests start ends when they are killed.
func TestChildrenDieWithTheirParent(t *testing.T) {
	t.Parallel()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stdout, parent.Stderr = in, os.Stderr
	ended, err := startTied(parent)
	_ = in.Close() // the processes have their own
	if err != nil {
		t.Fatal(err)
	}
	if err := out.SetReadDeadline(time.Now().Add(natstest.TestTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("it starts no process: %v", err)
	}
	_ = parent.Process.Kill()
	<-ended
	if _, err := io.Copy(io.Discard, out); err != nil { // its end comes when nobody has the pipe any more
		t.Errorf("the process outlives its parent: %v", err)
	}
}
