package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
)

// besideWait bounds how long the service may take to be ready, and to discover the network: it retries
// discovery after a while if the network was started later.
const besideWait = time.Minute

// Beside plays integrator, identity network and user next to a running service.
type Beside struct {
	config.StoreSettings `embed:"" group:"store"`

	Service       string `required:"" placeholder:"URL" help:"{base_url} of the running service."`
	Network       string `required:"" placeholder:"URL" help:"Origin under which the service's proxy serves the demo's identity network, as in the service's VERIFYD_NETWORK_ISSUER."`
	NetworkListen string `default:":9000" help:"Address at which the proxy reaches that network."`
	ClientID      string `name:"client-id" default:"verifyd" help:"The service's client id at that network."`
	ClientSecret  string `secret:"" env:"VERIFYD_NETWORK_CLIENT_SECRET" required:"" help:"The service's client secret at that network."`

	Receiver       string `required:"" placeholder:"URL" help:"Origin under which the proxy serves the sample integrator's receiver."`
	ReceiverListen string `default:":9001" help:"Address at which the proxy reaches that receiver."`

	Auto bool `help:"Exit after the first callback, with 0 if its signature is valid."`
}

// Play enrolls the sample integrator by the operator's credential, plays the user once, shows the callback,
// and then waits for people to try it.
func (b Beside) Play(ctx context.Context, by Operator, out, errOut io.Writer) error {
	d := &demo{Options: Options{Operator: by, Out: out, Err: errOut}, began: time.Now()}
	defer d.stop()
	if err := b.provide(d); err != nil {
		return err
	}
	l, err := net.Listen("tcp", b.ReceiverListen)
	if err != nil {
		return config.Usage(fmt.Errorf("--receiver-listen: %w", err))
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
	if err := d.walk(ctx, besideNetwork); err != nil || b.Auto {
		return err
	}
	return d.interactive(ctx, "It is simulated at "+b.Network+".")
}

// besideNetwork is the id of a network that is configured without a file.
const besideNetwork = "default"

// provide runs the dev network.
func (b Beside) provide(d *demo) error {
	dev, err := devnetwork.New(devnetwork.Config{
		Listen: b.NetworkListen, Issuer: b.Network, ClientID: b.ClientID, ClientSecret: b.ClientSecret,
		Logger: zerolog.Nop(),
	})
	if err != nil {
		return config.Usage(err)
	}
	if err := dev.Listen(); err != nil {
		return config.Usage(fmt.Errorf("--network-listen: %w", err))
	}
	s := dev.Settings()
	s.ID = besideNetwork
	n, err := network.New(s, network.Options{BaseURL: b.Service})
	if err != nil {
		return errors.Join(config.Usage(err), dev.Close())
	}
	dev.AllowRedirect(n.RedirectURI())
	d.run("dev network", dev)
	d.say("an identity network that is not real is up at %s", b.Network)
	return nil
}

// enroll creates the account and the key in the store.
func (b Beside) enroll(ctx context.Context, d *demo) error {
	var f config.Faults
	cfg := b.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	st, err := store.Reach(ctx, cfg, zerolog.New(d.Err).Level(zerolog.ErrorLevel), store.ToUse)
	if err != nil {
		return err
	}
	defer st.Close()
	a, secret, err := d.account(ctx, st.Accounts)
	if err != nil {
		return err
	}
	return d.integrator.enroll(b.Service, secret, a.Secrets[0].Value)
}

// await tries the first steps of a sign-in until the service redirects to the network.
func (b Beside) await(ctx context.Context, d *demo) error {
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

func (b Beside) tryOnce(ctx context.Context, d *demo) error {
	s, err := d.integrator.StartFor(ctx, User, d.integrator.CallbackURL())
	if err != nil {
		return err
	}
	browser := NewBrowser()
	p, err := browser.Open(ctx, s.VerifyURL)
	if err != nil {
		return err
	}
	if p, err = browser.Press(ctx, p, besideNetwork); err != nil {
		return err
	}
	// If the service does not know the network yet, the page says so, and its status is 200.
	_, _, err = p.form(devNetworkButton)
	return err
}
