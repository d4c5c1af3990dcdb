package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
)

// Difference is a place where the server's topology differs from the table.
type Difference struct {
	Asset, Field string
	Have, Want   string
	Kind         DifferenceKind
}

// DifferenceKind is what happens to a difference when the service starts.
type DifferenceKind int

// The kinds of a difference.
const (
	Missing  DifferenceKind = iota // the asset is made
	Updated                        // the setting is changed in place
	Outdated                       // only builds before 0.10.0 need the setting: see Ensurer.Finish
	Lasting                        // such a setting, which a server never takes back
	Drift                          // the service refuses to start: see DriftError
)

// Inspection is what a server reports about itself and about verifyd's assets on it.
type Inspection struct {
	jetstream.AccountLimits // what the account allows; -1: no limit

	Version string // of the server that answered
	Cluster string // its name; empty for a single server
	Servers int    // of the cluster, as far as the client knows them
	URL     string // without credentials
	TLS     bool
	RTT     time.Duration
	// Skew is how far the server's clock is ahead of this machine's, within RTT; Known reports whether it
	// could be learnt.
	Skew      time.Duration
	SkewKnown bool
	Used      uint64 // bytes of file storage in the account
	// MaxPayload is what the server takes as one message, in bytes.
	MaxPayload int64

	// KeptFor is how long StreamCompletions keeps outcomes; 0 if there is no such stream yet. MayUpdate: a
	// service with this credential makes it keep them for as long as its own settings say.
	KeptFor   time.Duration
	MayUpdate bool

	Streams     []StreamHealth // those that exist
	Differences []Difference
}

// Inspect reads and changes nothing. Its errors are *VersionError, those of the server's API, and ctx's.
func (e Ensurer) Inspect(ctx context.Context) (Inspection, error) {
	nc := e.Conn.NC
	in := Inspection{
		Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(),
		URL: nc.ConnectedUrlRedacted(), Servers: len(nc.Servers()),
	}
	_, notTLS := nc.TLSConnectionState()
	in.TLS = notTLS == nil
	var err error
	if in.RTT, err = nc.RTT(); err != nil {
		return in, fmt.Errorf("measure the way to the server: %w", err)
	}
	info, err := e.Conn.JS.AccountInfo(ctx)
	if err != nil {
		return in, fmt.Errorf("ask for the account: %w", err)
	}
	in.Used, in.AccountLimits, in.MaxPayload = info.Store, info.Limits, nc.MaxPayload()
	if info.API.Level < minAPILevel {
		return in, &VersionError{Version: in.Version}
	}
	in.MayUpdate = !e.isBound(ctx)
	for _, want := range e.Topology.Streams {
		if err := e.inspectStream(ctx, want, &in); err != nil {
			return in, err
		}
	}
	for _, c := range e.Topology.Consumers {
		if _, err := e.Conn.JS.Consumer(ctx, c.Stream, c.Config.Durable); errors.Is(err,
			jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			in.Differences = append(in.Differences, Difference{
				Asset: "consumer " + c.Config.Durable, Kind: Missing,
			})
		} else if err != nil {
			return in, fmt.Errorf("look up consumer %s: %w", c.Config.Durable, err)
		}
	}
	return in, nil
}

func (e Ensurer) inspectStream(ctx context.Context, want jetstream.StreamConfig, in *Inspection) error {
	asked := time.Now()
	s, err := e.Conn.JS.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		in.Differences = append(in.Differences, Difference{Asset: "stream " + want.Name, Kind: Missing})
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	info := s.CachedInfo()
	if skew := skewOf(info, asked); skew != nil {
		in.Skew, in.SkewKnown = *skew, true
	}
	if want.Name == topology.StreamCompletions {
		in.KeptFor = info.Config.MaxAge
	}
	differ, err := inspectConfig(info.Config, want)
	in.Streams = append(in.Streams, healthOf(settled(ctx, s)))
	in.Differences = append(in.Differences, differ...)
	return err
}

// skewOf returns how far the clock of the server that answered is ahead; nil if it did not report its time.
func skewOf(info *jetstream.StreamInfo, asked time.Time) *time.Duration {
	if info.TimeStamp.IsZero() {
		return nil
	}
	skew := info.TimeStamp.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Millisecond)
	return &skew
}

// inspectConfig returns the differences of a stream that exists.
func inspectConfig(have, want jetstream.StreamConfig) ([]Difference, error) {
	differ, err := differences(have, want)
	if drift, ok := errors.AsType[*DriftError](err); ok {
		return []Difference{drift.Difference}, nil
	}
	return differ, err
}
