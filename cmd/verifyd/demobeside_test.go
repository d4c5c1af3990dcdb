package main

import (
	"strings"
	"testing"
	"time"

	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
	"verifyd/natsconf/natstest"
)

// While the service does not find the network, the press of a button leads back to the page, which says so with status 200. The demo takes
// that for no sign-in, and goes on when the network is there.
func TestDemoBesideAwaitsTheNetwork(t *testing.T) {
	beside(t)
	at := natstest.Address(t)
	settings := network.Settings{
		ID: besideNetwork, Name: "Demo network", Kind: network.KindOIDC, Issuer: "http://" + at, ClientID: "verifyd", ClientSecret: "of-the-demo-network",
	}
	r := boot(t, func(c *config) { c.networks = []network.Settings{settings} })
	b := besideCmd{Service: r.base}
	d := &demo{console: console{out: &buffer{}, err: &buffer{}}, began: time.Now()}
	t.Cleanup(d.stop)
	d.integrator = must[*integrator](t)(newIntegrator(r.inbox.ca))
	d.run("sample integrator", d.integrator)
	if err := d.integrator.enroll(b.Service, r.apiKey, r.secret); err != nil {
		t.Fatal(err)
	}
	if err := b.tryOnce(t.Context(), d); err == nil || !strings.Contains(err.Error(), devNetworkButton) {
		t.Errorf("without a network: %v", err)
	}
	dev := must[*devnetwork.Provider](t)(devnetwork.New(devnetwork.Config{
		Listen: at, ClientID: settings.ClientID, ClientSecret: settings.ClientSecret, RedirectURIs: []string{r.base + "/signin/default/callback"},
	}))
	if err := dev.Listen(); err != nil {
		t.Fatal(err)
	}
	d.run("dev network", dev)
	if err := b.await(t.Context(), d); err != nil {
		t.Error(err)
	}
}
