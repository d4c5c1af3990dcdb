package certificate

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxMet bounds what a Met keeps: a process reports all of it every few seconds.
	maxMet = 32
	// metFor is how long it keeps a certificate: it may have been renewed since. One that should have been is
	// kept until another one is shown: once it has expired, no handshake succeeds.
	metFor = 24 * time.Hour
)

// Met keeps the certificates that servers have shown in TLS handshakes of the last day. If there are too
// many, it keeps those that expire first, and receivers' after all others. It is safe for concurrent use. A
// nil one keeps nothing.
type Met struct {
	mu  sync.Mutex
	all map[string]seen // by Of
}

type seen struct {
	Certificate

	at time.Time
}

// Verify returns a VerifyConnection of a tls.Config. It notes what servers of this kind show, and accepts it.
func (m *Met) Verify(kind string) func(tls.ConnectionState) error { return m.verify(kind, false) }

// VerifyReceiver returns that of receivers.
func (m *Met) VerifyReceiver() func(tls.ConnectionState) error { return m.verify("receiver", true) }

func (m *Met) verify(kind string, foreign bool) func(tls.ConnectionState) error {
	if m == nil {
		return nil
	}
	return func(state tls.ConnectionState) error {
		if c, ok := Shown(kind+" "+host(state), state, nil); ok {
			c.Foreign = foreign
			m.keep(c)
		}
		return nil
	}
}

// host returns what the server was asked to be. A client does not send an address (RFC 6066 §3), so that is
// one of the certificate.
func host(state tls.ConnectionState) string {
	if leaf := state.PeerCertificates[0]; state.ServerName == "" && len(leaf.IPAddresses) > 0 {
		return fmt.Sprint(leaf.IPAddresses[0])
	}
	return state.ServerName
}

func (m *Met) keep(c Certificate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]seen{}
	}
	m.all[c.Of] = seen{c, time.Now()}
	if len(m.all) > maxMet {
		delete(m.all, slices.MaxFunc(slices.Collect(maps.Values(m.all)), byNeed).Of)
	}
}

// byNeed orders what is kept first before what is kept last.
func byNeed(a, b seen) int {
	switch {
	case a.Foreign == b.Foreign:
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Of, b.Of))
	case a.Foreign:
		return 1
	default:
		return -1
	}
}

// List returns them, by name.
func (m *Met) List() (all []Certificate) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.all, func(_ string, s seen) bool {
		return now.Sub(s.at) > metFor && (s.Foreign || !s.Due(now))
	})
	for _, of := range slices.Sorted(maps.Keys(m.all)) {
		all = append(all, m.all[of].Certificate)
	}
	return all
}
