package bench

import (
	"crypto/tls"
	"sync/atomic"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/devnetwork"
)

// outside has the parties outside of the service, over TLS: the identity network, and receivers of callbacks.
type outside struct {
	ca         *localca.Authority
	network    *devnetwork.Provider
	handshakes atomic.Int64 // sign-ins sign-ins that the network has begun
}

// newOutside creates the network, which listens; the caller serves it.
func newOutside() (o *outside, err error) {
	o = &outside{}
	if o.ca, err = localca.New(); err != nil {
		return nil, err
	}
	certificate, err := o.ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	if o.network, err = devnetwork.New(devnetwork.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			o.handshakes.Add(1)
			return nil, nil //nolint:nilnil // the configuration stays as it is
		},
	}}); err != nil {
		return nil, err
	}
	return o, o.network.Listen()
}

// receiver listens for callbacks on a number of hosts.
func (o *outside) receiver(hosts int) (*load.Receiver, error) { return load.NewReceiver(o.ca, hosts) }
