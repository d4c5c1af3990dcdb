package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
)

type moveCmd struct {
	storeCmd `embed:""`

	To         string `env:"-" help:"NATS servers to move to (nats://a:4222,nats://b:4222)."`
	ToCreds    string `env:"-" help:"Credentials file for them."`
	ToCAFile   string `env:"-" name:"to-ca-file" help:"Extra PEM roots for their certificates."`
	ToReplicas int    `env:"-" default:"3" help:"Copies of every stream there."`
	Finish     bool   `env:"-" help:"Leave the old store for good when everything is brought, and open the new one."`
	Abort      bool   `env:"-" help:"Take the old store back, where a finish was begun and could not be ended."`
}

// Run brings a store to a cluster while the service runs. It can be repeated: each run brings what is new.
func (m moveCmd) Run(ctx context.Context, c console) error {
	if m.Abort {
		return m.look(ctx, c, func(st *store) error { return m.takeBack(ctx, c, st) })
	}
	return m.look(ctx, c, func(from *store) error {
		target, err := m.target(from)
		if err != nil {
			return err
		}
		to, err := openStore(ctx, target, zerolog.New(c.err).Level(zerolog.ErrorLevel), m.purpose(ctx, from))
		if err != nil {
			return fmt.Errorf("the store to move to: %w", err)
		}
		defer to.close()
		return m.move(ctx, c, &mover{
			from: from, to: to, assets: everything(), running: from.embedded == nil,
		})
	})
}

// purpose lets a move be repeated that has ended: then there is nothing left to do, and it says so.
func (m moveCmd) purpose(ctx context.Context, from *store) purpose {
	if s, err := from.conn.Standing(ctx); err == nil && s.State == natsconf.StandingLeft {
		return toRepeat
	}
	return toFill
}

// target gives the settings of the store to move to: those of this service, but for where it is.
func (m moveCmd) target(from *store) (storeConfig, error) {
	s := m.storeSettings
	s.NATSURL, s.NATSCreds, s.NATSCAFile, s.Replicas = m.To, m.ToCreds, m.ToCAFile, m.ToReplicas
	s.SecretKey, s.SecretKeyFile = from.key.Encode(), ""
	if m.To == "" {
		return storeConfig{}, usageError{fmt.Errorf("--to: not set; name the NATS servers to move to, for example --to nats://10.0.0.1:4222,nats://10.0.0.2:4222")}
	}
	if m.To == m.NATSURL {
		return storeConfig{}, usageError{fmt.Errorf("--to: it names the servers that the store is on")}
	}
	var f faults
	c := s.config(&f)
	return c, asFlags(f.err())
}

// asFlags tells faults of settings by the flags of this command, which no environment variable sets.
func asFlags(err error) error {
	if err == nil {
		return nil
	}
	r := strings.NewReplacer("VERIFYD_NATS_URL (--nats-url)", "--to", "VERIFYD_NATS_CREDS (--nats-creds)", "--to-creds",
		"VERIFYD_NATS_CA_FILE (--nats-ca-file)", "--to-ca-file", "VERIFYD_REPLICAS (--replicas)", "--to-replicas", "VERIFYD_NATS_URL", "--to")
	return usageError{fmt.Errorf("%s", r.Replace(err.Error()))}
}

func (m moveCmd) takeBack(ctx context.Context, c console, st *store) error {
	if err := abortMove(ctx, st); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.err, "The store is in service again. Empty the store that was being filled before another move.")
	return err
}

func (m moveCmd) move(ctx context.Context, c console, v *mover) error {
	if next, err := v.to.conn.Standing(ctx); err != nil || next.State == natsconf.StandingOpen {
		if err == nil {
			_, err = fmt.Fprintln(c.err, "The move has ended before; both stores are as it left them.")
		}
		return err
	}
	if err := v.pair(ctx, m.source()); err != nil {
		return err
	}
	reports, err := v.copyOnce(ctx)
	if err != nil {
		return err
	}
	tellBrought(c.out, reports)
	if !m.Finish {
		all, equal, err := v.compare(ctx)
		if err != nil {
			return err
		}
		tellCompared(c.out, all)
		if equal {
			_, err = fmt.Fprintln(c.err, "Both stores hold the same. The old one is in service; verifyd move --finish changes over.")
		} else {
			_, err = fmt.Fprintln(c.err, "The service has gone on meanwhile. The old store is in service; run this again to bring what is new, verifyd move --finish changes over.")
		}
		return err
	}
	all, err := v.finish(ctx, redacted(m.To))
	tellCompared(c.out, all)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.err, "The new store is open: start the service with VERIFYD_NATS_URL=%s and the same master key. The old store is closed for good; "+
		"its data directory can go when the new service runs.\n", redacted(m.To))
	return err
}

// source names the store that is left, for people.
func (m moveCmd) source() string {
	if m.NATSURL != "" {
		return redacted(m.NATSURL)
	}
	return m.DataDir
}

// redacted keeps passwords out of what is printed and stored.
func redacted(urls string) string {
	var parts []string
	for text := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(text); err == nil {
			text = u.Redacted()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}
