package storage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/move"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/transfer"
)

// Move brings the store to a NATS cluster while the service runs.
type Move struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	To         string `help:"NATS servers to move to (nats://a:4222,nats://b:4222)."`
	ToCreds    string `help:"Credential for them: a credentials file, or the seed of an nkey."`
	ToCAFile   string `name:"to-ca-file" help:"Extra PEM roots for their certificates."`
	ToReplicas int    `default:"3" help:"Copies of every stream there."`
	Finish     bool   `help:"Once everything is copied, close the old store permanently and open the new one."`
	Abort      bool   `help:"Put the old store back into service, if --finish was begun and could not be completed."`
}

// Run brings a store to a cluster while the service runs. It can be repeated: each run copies what is new.
func (m Move) Run(ctx context.Context, c command.Console) error {
	if m.Abort {
		return m.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
			return m.takeBack(ctx, c, st)
		})
	}
	return m.Use(ctx, c, command.WhyRecords, func(from *store.Store) error {
		target, err := m.target(from)
		if err != nil {
			return err
		}
		to, err := store.Open(ctx, target, zerolog.New(c.Err).Level(zerolog.WarnLevel), m.purpose(ctx, from))
		if errors.As(err, new(config.UsageError)) {
			err = asFlags(err)
		}
		if err != nil {
			return fmt.Errorf("the store to move to: %w", err)
		}
		defer to.Close()
		return m.move(ctx, c, &move.Move{
			From: from, To: to, Assets: store.Assets(), Running: from.Embedded == nil,
		})
	})
}

// purpose lets a finished move be repeated: there is nothing left to do then, and the command reports that.
func (m Move) purpose(ctx context.Context, from *store.Store) store.Purpose {
	if s, err := storestate.Read(ctx, from.Conn); err == nil && s.State == storestate.StateRetired {
		return store.ToRepeat
	}
	return store.ToFill
}

// target returns the settings of the store to move to: those of this service, except for its location.
func (m Move) target(from *store.Store) (config.Store, error) {
	s := m.StoreSettings
	s.NATSURL, s.NATSCreds, s.NATSCAFile, s.Replicas = m.To, m.ToCreds, m.ToCAFile, m.ToReplicas
	s.SecretKey, s.SecretKeyFile = from.Key.Encode(), ""
	if m.To == "" {
		return config.Store{}, config.Usage(
			fmt.Errorf("--to: not set; name the NATS servers to move to, for example --to " +
				"nats://10.0.0.1:4222,nats://10.0.0.2:4222"))
	}
	if m.To == m.NATSURL {
		return config.Store{}, config.Usage(
			fmt.Errorf("--to: these are the servers that the store is on already"))
	}
	var f config.Faults
	c := s.Config(&f)
	return c, asFlags(f.Err())
}

// asFlags reports faults of settings under the names of this command's flags, which no environment variable
// sets.
func asFlags(err error) error {
	if err == nil {
		return nil
	}
	r := strings.NewReplacer("VERIFYD_NATS_URL (--nats-url)", "--to", "VERIFYD_NATS_CREDS (--nats-creds)",
		"--to-creds",
		"VERIFYD_NATS_CA_FILE (--nats-ca-file)", "--to-ca-file", "VERIFYD_REPLICAS (--replicas)",
		"--to-replicas", "VERIFYD_NATS_URL", "--to")
	return config.Usage(fmt.Errorf("%s", r.Replace(err.Error())))
}

func (m Move) takeBack(ctx context.Context, c command.Console, st *store.Store) error {
	if err := move.Abort(ctx, st); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.Err,
		"The store is in service again. What was copied stays in the new store: "+
			"another move to it continues from there.")
	return err
}

func (m Move) move(ctx context.Context, c command.Console, v *move.Move) error {
	if ended, err := v.Ended(ctx); err != nil || ended {
		if err == nil {
			_, err = fmt.Fprintln(c.Err, "The move was finished before; nothing was done now.")
		}
		return err
	}
	if err := v.Pair(ctx, m.source()); err != nil {
		return err
	}
	reports, err := v.CopyOnce(ctx)
	if err != nil {
		return err
	}
	shown := []*table.Table{copiedTable(reports)}
	if !m.JSON { // people read it while the rest continues; programs get one document
		if err := m.Print(c.Out, shown...); err != nil {
			return err
		}
		shown = nil
	}
	if !m.Finish {
		all, equal, err := v.Compare(ctx)
		if err == nil {
			err = m.Print(c.Out, append(shown, comparedTable(all))...)
		}
		if err != nil {
			return err
		}
		old, err := storestate.Read(ctx, v.From.Conn)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.Err, comparedText(equal, v.Running, old))
		return err
	}
	all, err := v.Finish(ctx, redacted(m.To))
	if len(all) > 0 { // a repeat of what was compared before has nothing to compare
		shown = append(shown, comparedTable(all))
	}
	if len(shown) > 0 {
		err = errors.Join(err, m.Print(c.Out, shown...))
	}
	if err != nil {
		return v.NotFinished(ctx, err)
	}
	_, err = fmt.Fprintln(c.Err, m.finishedText())
	return err
}

// comparedText describes the difference between the stores after a run that does not finish the move.
func comparedText(equal, running bool, old storestate.Record) string {
	text := "Both stores hold the same."
	switch {
	case equal:
	case running && old.State == storestate.StateOpen:
		text = "The service has kept running meanwhile; run this again to copy what is new."
	default:
		text = "The stores differ: the old one has removed something since it was copied; verifyd " +
			"move --finish copies that again."
	}
	if old.State != storestate.StateOpen {
		return text + " A verifyd move --finish was begun and has not ended: " +
			(&storestate.Error{Record: old}).Error() + "."
	}
	return text + " The old one is the one to serve; verifyd move --finish switches to the new one."
}

// finishedText describes what to do after a move: the new service does not start without each of these
// settings.
func (m Move) finishedText() string {
	text := "The old store is closed permanently, and the new one is open. Start the service with the " +
		"settings that it had, but for these:\n  VERIFYD_NATS_URL=" + redacted(m.To) +
		fmt.Sprintf("\n  VERIFYD_REPLICAS=%d\n", m.ToReplicas)
	for _, s := range []struct{ name, before, value string }{
		{"VERIFYD_NATS_CREDS", m.NATSCreds, m.ToCreds}, {"VERIFYD_NATS_CA_FILE", m.NATSCAFile, m.ToCAFile},
	} {
		switch {
		case s.value != "":
			text += "  " + s.name + "=" + s.value + "\n"
		case s.before != "":
			text += "  without " + s.name + "\n"
		}
	}
	if m.NATSURL != "" {
		return text + "The streams of the old store can be deleted when the new service runs."
	}
	text += "  without VERIFYD_COPY_TO\n" // it copies only an embedded store
	rest := "The old data directory"
	if m.SecretKey == "" && m.SecretKeyFile == "" {
		text += "  VERIFYD_SECRET_KEY_FILE=" + filepath.Join(m.DataDir, config.SecretFile) + "\n"
		rest = "The rest of the old data directory"
	}
	return text + rest + " can be deleted when the new service runs."
}

// source names the old store, for people.
func (m Move) source() string {
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

// copiedTable is what a run has copied.
func copiedTable(reports []transfer.Report) *table.Table {
	t := table.New("brought", "ASSET", "COPIED NOW:messages")
	for _, r := range reports {
		t.Add(r.Stream, r.Filled)
	}
	return t
}

// comparedTable is what both stores hold.
func comparedTable(all []transfer.Comparison) *table.Table {
	t := table.New("compared", "ASSET", "OLD STORE", "NEW STORE", "DIGEST")
	for _, c := range all {
		digest := table.NewCell(c.To.Digest()[:16], c.To.Digest()[:16])
		if !c.Equal() {
			digest = table.NewCell("differs", nil)
		}
		t.Add(c.Stream, c.From.Count, c.To.Count, digest)
	}
	return t
}
