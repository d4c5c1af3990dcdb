package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// DriftError reports that an asset on the server differs from the table in a way that must not be changed
// under it, because data would be lost or a fence weakened.
type DriftError struct{ Difference }

func (e *DriftError) Error() string {
	return fmt.Sprintf("%s: %s is %s on the server, verifyd needs %s; it will not change that by itself: "+
		"move the data to a fresh stream, or restore the setting", e.Asset, e.Field, e.Have, e.Want)
}

// minAPILevel is the JetStream API level that the topology needs: counters, atomic batches and asynchronous
// persistence came with level 2 (nats-server 2.12). An older server would create the streams and silently
// leave those settings out: batches would be judged message by message, and a claim could have two owners.
const minAPILevel = 2

// VersionError reports that the server is too old for the topology.
type VersionError struct{ Version string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the NATS server is %s; verifyd needs 2.12 or newer, for atomic batches and counters",
		e.Version)
}

// ShortenError reports that a stream cannot keep its messages for less time than it does.
type ShortenError struct {
	Asset string
	Err   error
}

func (e *ShortenError) Error() string { return e.Asset + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *ShortenError) Unwrap() error { return e.Err }

// MissingError reports that an asset is not there and this credential may not make it.
type MissingError struct{ Asset string }

func (e *MissingError) Error() string {
	return e.Asset + " is missing on the server, and this credential may not make it: run verifyd " +
		"apply with the operator's credential"
}

// Ensurer makes sure that the server holds the topology.
type Ensurer struct {
	Conn     *natsconf.Conn
	Topology topology.Topology
	// Update lets it change settings of assets that exist, such as how long results are kept. Only the
	// service itself does so: a command that an operator runs with other settings must not cut off data.
	Update bool
	// Finish lets it remove settings that only builds before 0.10.0 need, which then no longer start.
	Finish bool
	// Changed, if set, is called with each setting that was changed.
	Changed func(asset, field, from, to string)
	// Shorten, if set, is called before a stream keeps its messages for less time than it did: older messages
	// then go at once. Its error ends Ensure, as a lasting one.
	Shorten func(ctx context.Context, stream string, to time.Duration) error
	// Waiting are called with what EnsureAtBoot waits for, as AtBoot does.
	Waiting []func(error)
}

// changeable are the stream settings that may be updated in place, all of them the operator's own choices.
var changeable = []string{"description", "max_age", "num_replicas", "duplicate_window", "allow_msg_ttl"}

// ignored are settings that verifyd has no opinion on: they stay as the operator has them.
var ignored = []string{"placement", "consumer_limits", "compression", "metadata"}

// Ensure creates what is missing and, if allowed, updates what may change. It is harmless to repeat. It
// returns a *DriftError for a difference that it refuses to touch, a *VersionError for a server that is too
// old, and a *MissingError if the credential may make nothing, like those of an edge and of a dispatcher.
func (e Ensurer) Ensure(ctx context.Context) error {
	if err := e.checkVersion(ctx); err != nil {
		return err
	}
	bound := e.isBound(ctx)
	for _, want := range e.Topology.Streams {
		if err := e.stream(ctx, want, bound); err != nil {
			return err
		}
	}
	if bound {
		return nil // the dispatchers make their consumers themselves if these are missing
	}
	for _, c := range e.Topology.Consumers {
		if err := natsconf.EnsureConsumer(ctx, e.Conn.JS, c); err != nil {
			return err
		}
	}
	return nil
}

// isBound asks the server whether this credential may not make the streams. If the server does not report
// that, Ensure tries.
func (e Ensurer) isBound(ctx context.Context) bool {
	g, err := e.Conn.Grants(ctx)
	return err == nil && slices.ContainsFunc(e.Topology.Streams, func(s jetstream.StreamConfig) bool {
		return !g.MayPublish("$JS.API.STREAM.CREATE." + s.Name)
	})
}

func (e Ensurer) checkVersion(ctx context.Context) error {
	info, err := e.Conn.JS.AccountInfo(ctx)
	if err != nil {
		return fmt.Errorf("ask for the account: %w", err)
	}
	if info.API.Level < minAPILevel {
		return &VersionError{Version: e.Conn.NC.ConnectedServerVersion()}
	}
	return nil
}

func (e Ensurer) stream(ctx context.Context, want jetstream.StreamConfig, bound bool) error {
	s, err := e.Conn.JS.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && bound:
		return &MissingError{Asset: "stream " + want.Name}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return e.create(ctx, want)
	case err != nil:
		return fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	e.Update, e.Finish = e.Update && !bound, e.Finish && !bound
	return e.update(ctx, s.CachedInfo().Config, want)
}

// create also compares what the server made with what was requested.
func (e Ensurer) create(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := e.Conn.JS.CreateStream(ctx, want)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", want.Name, err)
	}
	_, err = differences(s.CachedInfo().Config, want)
	return err
}

func (e Ensurer) update(ctx context.Context, have, want jetstream.StreamConfig) error {
	differ, err := differences(have, want)
	differ = slices.DeleteFunc(differ, func(d Difference) bool {
		return d.Kind == Lasting || d.Kind == Outdated && !e.Finish || d.Kind == Updated && !e.Update
	})
	if err != nil || len(differ) == 0 {
		return err
	}
	if e.Update && e.Shorten != nil && want.MaxAge != 0 && (have.MaxAge == 0 || want.MaxAge < have.MaxAge) {
		if err := e.Shorten(ctx, want.Name, want.MaxAge); err != nil {
			return &ShortenError{want.Name, err}
		}
	}
	next := have // what is ignored stays
	if e.Update {
		next.Subjects = want.Subjects
		next.Description, next.MaxAge, next.Replicas, next.Duplicates = want.Description, want.MaxAge,
			want.Replicas, want.Duplicates
		next.AllowMsgTTL = next.AllowMsgTTL || want.AllowMsgTTL // it cannot be taken back
	}
	if e.Finish {
		next.AllowRollup, next.MaxMsgsPerSubject = want.AllowRollup, want.MaxMsgsPerSubject
	}
	if _, err := e.Conn.JS.UpdateStream(ctx, next); err != nil {
		return fmt.Errorf("update stream %s: %w", want.Name, err)
	}
	for _, d := range differ {
		if e.Changed != nil {
			e.Changed("stream "+want.Name, d.Field, d.Have, d.Want)
		}
	}
	return nil
}

// outdated reports whether a setting of a bucket is one that builds before 0.10.0 make and need, and that
// allows more than this one does. It stays as long as such a build may run: see Ensurer.Finish.
func outdated(d Difference) bool {
	name := strings.TrimPrefix(d.Asset, "stream ")
	switch d.Field {
	case "allow_rollup_hdrs":
		return d.Have == "true" && strings.HasPrefix(name, topology.BucketStream(""))
	case "max_msgs_per_subject":
		return d.Have == "5" && (name == topology.BucketStream(topology.BucketAccounts) ||
			name == topology.BucketStream(topology.BucketKeys))
	}
	return false
}

// differences lists the settings that differ and with which the service works. A difference in any other
// setting is a *DriftError.
func differences(have, want jetstream.StreamConfig) ([]Difference, error) {
	h, err := fields(have)
	if err != nil {
		return nil, err
	}
	w, err := fields(want)
	if err != nil {
		return nil, err
	}
	var differ []Difference
	all := maps.Clone(h)
	maps.Copy(all, w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := Difference{Asset: "stream " + want.Name, Field: name, Have: show(h[name]), Want: show(w[name]),
			Kind: Updated}
		switch {
		case bytes.Equal(h[name], w[name]), slices.Contains(ignored, name):
			continue
		case name == "allow_direct" && want.AllowDirect:
			continue // Stores of older builds stay without it: those builds would refuse them with it.
		case name == "subjects" && contains(want.Subjects, have.Subjects): // more of them take nothing away
		case name == "allow_msg_ttl" && w[name] == nil:
			d.Kind = Lasting
		case outdated(d):
			d.Kind = Outdated
		case slices.Contains(changeable, name):
		default:
			d.Kind = Drift
			return nil, &DriftError{d}
		}
		differ = append(differ, d)
	}
	return differ, nil
}

// contains reports whether all of these are among those.
func contains(those, these []string) bool {
	return !slices.ContainsFunc(these, func(s string) bool { return !slices.Contains(those, s) })
}

// fields returns a stream's settings by their names on the wire, so that a setting this code does not know
// is compared as well.
func fields(c jetstream.StreamConfig) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode stream %s: %w", c.Name, err)
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("decode stream %s: %w", c.Name, err)
	}
	for name, v := range m {
		if s := string(v); s == "false" || s == "null" || s == `""` || s == "0" {
			delete(m, name) // absent and zero mean the same on the wire
		}
	}
	return m, nil
}

func show(v json.RawMessage) string {
	if v == nil {
		return "unset"
	}
	return string(v)
}

// EnsureAtBoot repeats Ensure in short tries until it succeeds, a lasting fault ends it, or ctx does.
func (e Ensurer) EnsureAtBoot(ctx context.Context) error {
	return natsconf.AtBoot(ctx, e.Ensure, func(err error) bool {
		_, missing := errors.AsType[*MissingError](err)
		return lasting(err) || missing && !e.Update // a command does not wait for an operator
	}, e.Waiting...)
}

// lasting reports whether the server understood and refused, or this package did: it will do so again.
func lasting(err error) bool {
	if _, ok := errors.AsType[*DriftError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*VersionError](err); ok {
		return true
	}
	if short, ok := errors.AsType[*ShortenError](err); ok {
		return !errors.Is(short.Err, natsconf.ErrUnavailable)
	}
	return natsconf.Lasting(err)
}
