package chromiumtest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"
)

// becomeVariable names the program that a test binary becomes.
const becomeVariable = "VERIFYD_TEST_BECOME"

func init() { //nolint:gochecknoinits // a test binary becomes the browser before any test of it runs
	if program := os.Getenv(becomeVariable); program != "" {
		fmt.Fprintln(os.Stderr, becomeStill(program))
		os.Exit(1)
	}
}

// start returns the options by which the browser is started. Chromium breaks off all that it loads, with
// net::ERR_NETWORK_CHANGED, when an address of the machine appears or disappears, as containers' do during
// tests. It hears of that through a netlink socket, and where it gets none it goes on without. No option
// takes it away: so the test binary denies that socket to itself, and becomes the browser. Who is not root
// would have to give up the browser's sandbox for it.
func start(program string) []chromedp.ExecAllocatorOption {
	self, err := os.Executable()
	if err != nil || os.Geteuid() != 0 {
		return []chromedp.ExecAllocatorOption{chromedp.ExecPath(program)}
	}
	return []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(self), chromedp.Env(becomeVariable + "=" + program),
	}
}

// becomeStill replaces this process by a program that gets no netlink socket. It comes back with an error
// only.
func becomeStill(program string) error {
	runtime.LockOSThread() // the filter is the thread's, and what it becomes has it too
	// in seccomp_data (seccomp(2)): the system call's, and its first argument's lower half
	const number, argument = 0, 16
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_NETLINK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // six
	// what a root in a container has to give up for a filter
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, //nolint:gosec // as prctl(2) takes it
			0)
	}
	if err != nil {
		// which matters only with containers
		fmt.Fprintln(os.Stderr, "the browser may have a netlink socket:", err)
	}
	args := append([]string{program}, os.Args[1:]...)
	return fmt.Errorf("become %s: %w", program,
		syscall.Exec(program, args, os.Environ())) //nolint:gosec // the test's own words
}
