package proc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopWithin is how long a child may take to stop by itself before it is killed: a dispatcher's drain
	// takes the longest.
	stopWithin = 30 * time.Second
	// tailBytes is how much of a child's log is kept, to be shown if it fails.
	tailBytes = 4 << 10
)

// Process is a child.
type Process struct {
	Exited <-chan struct{} // closed when it is gone
	Began  time.Time

	cmd *exec.Cmd
	log *tail // the end of what it wrote to standard error
}

// Start runs a binary as a child, with additional variables. Variables of verifyd in this process's
// environment are not passed on: only the bench configures what it measures.
func Start(file string, args, env []string, stdin io.Reader, stdout io.Writer) (*Process, error) {
	exited := make(chan struct{})
	p := &Process{Exited: exited, log: &tail{}}
	p.cmd = exec.Command(file, args...) //nolint:gosec // this binary, or the caller's verifyd
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "VERIFYD_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, p.log
	p.cmd.SysProcAttr = notOrphaned()
	p.Began = time.Now()
	started := make(chan error)
	go func() {
		// The kernel kills a child when the thread ends that has started it: this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log shows how it ended
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s %s: %w", file, args[0], err)
	}
	return p, nil
}

// Stop asks the child to exit, and waits for it.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
	p.Await()
}

// Await waits until the child has exited by itself, and kills it if that takes too long.
func (p *Process) Await() {
	select {
	case <-p.Exited:
	case <-time.After(stopWithin):
		p.Kill()
	}
}

// Kill ends the child at once, as kill -9 does, and waits until it is gone. A repeat is harmless.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.Exited
}

// Failure returns the error for a child that has ended by itself, with the end of its log.
func (p *Process) Failure() error {
	return fmt.Errorf("the child ended by itself: %s", p.Log())
}

// Log returns the end of what the child wrote to standard error.
func (p *Process) Log() string { return strings.TrimSpace(p.log.String()) }

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
