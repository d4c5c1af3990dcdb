package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
)

// besideWait bounds how long the service may take to be there, and to know the network: it asks again after a while where that came later.
const besideWait = time.Minute

type besideCmd struct {
	storeSettings `embed:""`

	Service       string `env:"-" required:"" placeholder:"URL" help:"{base_url} of the running service."`
	Network       string `env:"-" required:"" placeholder:"URL" help:"Origin under which the service's proxy shows the demo's identity network; the service has it as VERIFYD_NETWORK_ISSUER."`
	NetworkListen string `env:"-" default:":9000" help:"Where the proxy finds that network."`
	ClientID      string `env:"-" name:"client-id" default:"verifyd" help:"The service's client id there."`
	ClientSecret  string `env:"-" required:"" help:"The service's client secret there."`

	Receiver       string `env:"-" required:"" placeholder:"URL" help:"Origin under which the proxy shows the sample integrator's receiver."`
	ReceiverListen string `env:"-" default:":9001" help:"Where the proxy finds that receiver."`

	Auto bool `env:"-" help:"Exit after the first callback: 0 when its signature verified."`
}

// Run enrolls the sample integrator by the operator's credential, plays the user once, shows the callback, and then lets people try.
func (b besideCmd) Run(ctx context.Context, c console) error {
	d := &demo{console: c, began: time.Now()}
	defer d.stop()
	if err := b.provide(d); err != nil {
		return err
	}
	var l net.Listener
	l, err := net.Listen("tcp", b.ReceiverListen)
	if err != nil {
		return usageError{fmt.Errorf("--receiver-listen: %w", err)}
	}
	d.integrator = receiveAt(l)
	d.integrator.shown = b.Receiver
	d.run("sample integrator", d.integrator)
	if err := b.enroll(ctx, d); err != nil {
		return err
	}
	if err := b.await(ctx, d); err != nil {
		return err
	}
	if err := d.auto(ctx, besideNetwork); err != nil || b.Auto {
		return err
	}
	return d.interactive(ctx, "It is played on "+b.Network+".")
}

// besideNetwork is the id of a network that is configured without a file.
const besideNetwork = "default"

// provide runs the identity network.
func (b besideCmd) provide(d *demo) error {
	dev, err := devnetwork.New(devnetwork.Config{Listen: b.NetworkListen, Issuer: b.Network, ClientID: b.ClientID, ClientSecret: b.ClientSecret, Logger: zerolog.Nop()})
	if err != nil {
		return usageError{err}
	}
	if err := dev.Listen(); err != nil {
		return usageError{fmt.Errorf("--network-listen: %w", err)}
	}
	s := dev.Settings()
	s.ID = besideNetwork
	n, err := network.New(s, network.Options{BaseURL: b.Service})
	if err != nil {
		return errors.Join(usageError{err}, dev.Close())
	}
	dev.AllowRedirect(n.RedirectURI())
	d.run("dev network", dev)
	d.say("an identity network that is not real is up at %s", b.Network)
	return nil
}

// enroll makes the account and the key on the store itself.
func (b besideCmd) enroll(ctx context.Context, d *demo) error {
	var f faults
	cfg := b.config(&f)
	if err := f.err(); err != nil {
		return usageError{err}
	}
	st, err := reachStore(ctx, cfg, zerolog.New(d.err).Level(zerolog.ErrorLevel))
	if err != nil {
		return err
	}
	defer st.close()
	a, secret, err := d.account(ctx, st.accounts)
	if err != nil {
		return err
	}
	return d.integrator.enroll(b.Service, secret, a.Secrets[0].Value)
}

// await tries a sign-in's first steps until the service leads to the network.
func (b besideCmd) await(ctx context.Context, d *demo) error {
	ctx, cancel := context.WithTimeout(ctx, besideWait)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := b.tryOnce(ctx, d)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the service at %s is not ready for a sign-in: %w", b.Service, err)
		}
	}
}

func (b besideCmd) tryOnce(ctx context.Context, d *demo) error {
	s, err := d.integrator.start(ctx, demoUser)
	if err != nil {
		return err
	}
	browser := newBrowser()
	p, err := browser.open(ctx, s.VerifyURL)
	if err != nil {
		return err
	}
	if p, err = browser.press(ctx, p, besideNetwork); err != nil {
		return err
	}
	// Where the service does not know the network yet, the page says so, and its status is 200.
	_, _, err = p.form(devNetworkButton)
	return err
}
