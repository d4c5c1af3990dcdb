package demo

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/service"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/account/access"
	"verifyd/edge/devnetwork"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
)

// While the service has not discovered the network, the press of a button leads back to the page, which
// reports that with status 200. The demo does not count that as a sign-in, and continues when the network is
// discovered.
func TestDemoBesideAwaitsTheNetwork(t *testing.T) {
	at := natstest.Address(t)
	settings := netsettings.Settings{
		ID: besideNetwork, Name: "Demo network", Kind: netsettings.KindOIDC, Issuer: "http://" + at,
		ClientID: "verifyd", ClientSecret: "of-the-demo-network",
	}
	dir := t.TempDir()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Config(dir, caFile, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.Networks = "127.0.0.1:0", []netsettings.Settings{settings}
	d := &demo{
		Options: Options{
			Operator: Operator{Actor: access.Operator("")}, Out: io.Discard, Err: io.Discard,
		}, began: time.Now(), program: service.New(cfg),
	}
	t.Cleanup(d.stop)
	failed := d.run("service", d.program)
	select {
	case <-d.program.Ready:
	case err := <-failed:
		t.Fatal(err)
	}
	if d.integrator, err = NewIntegrator(ca); err != nil {
		t.Fatal(err)
	}
	d.run("sample integrator", d.integrator)
	if err := d.enroll(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := Beside{Service: d.program.Base}
	if err := b.tryOnce(t.Context(), d); err == nil || !strings.Contains(err.Error(), devNetworkButton) {
		t.Errorf("without a network: %v", err)
	}
	dev, err := devnetwork.New(devnetwork.Config{
		Listen: at, ClientID: settings.ClientID, ClientSecret: settings.ClientSecret, RedirectURIs: []string{
			d.program.Base + "/signin/default/callback",
		},
	})
	if err == nil {
		err = dev.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.run("dev network", dev)
	if err := b.await(t.Context(), d); err != nil {
		t.Error(err)
	}
}
