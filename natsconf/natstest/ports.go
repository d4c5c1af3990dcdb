package natstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are chosen below the ranges from which systems choose them themselves: 32768 and above on Linux,
// 49152 elsewhere.
const firstPort, lastPort = 20_000, 32_000

// marks are the ports of this process, each by a UDP socket of its number.
var marks struct {
	sync.Mutex

	held []net.PacketConn // never closed: the process's end does that
}

// Address returns an unused address on 127.0.0.1, reserved for this process: no other process that calls it
// gets the port, and the system does not use it for connections. A killed server can use it again.
func Address(tb testing.TB) string {
	tb.Helper()
	port, err := takePort()
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// takePorts chooses ports as Address does: servers that meet have to know each other's before they start.
func takePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = takePort(); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

func takePort() (int, error) {
	const span = lastPort - firstPort
	from := rand.N(span) //nolint:gosec // chance is enough
	for i := range span {
		if port := firstPort + (from+i)%span; mark(port) {
			return port, nil
		}
	}
	return 0, errors.New("no TCP port is free between 20000 and 32000")
}

// mark reserves a port for this process, if it is free.
func mark(port int) bool {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	held, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = held.Close()
		return false
	}
	_ = l.Close()
	marks.Lock()
	defer marks.Unlock()
	marks.held = append(marks.held, held)
	return true
}
