package natsconf

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
)

// DriftError says that an asset on the server differs from the table in a way that must not be changed under it, because data
// would be lost or a fence weakened.
type DriftError struct {
	Asset, Field string
	Have, Want   string
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("%s: %s is %s on the server, verifyd needs %s; it will not change that by itself: "+
		"move the data to a fresh stream, or restore the setting", e.Asset, e.Field, e.Have, e.Want)
}

// changeable are the stream settings that Ensure may update in place: none of them removes a message that is promised, since
// the values of the table are the operator's own choices.
var changeable = []string{"description", "max_age", "num_replicas", "duplicate_window", "persist_mode"}

// ignored are settings that the server fills in and verifyd has no opinion on.
var ignored = []string{"placement", "consumer_limits", "compression", "metadata"}

// Ensure creates what is missing and updates what may change, and is harmless to repeat. It returns a *DriftError for a
// difference that it refuses to touch.
func Ensure(ctx context.Context, js jetstream.JetStream, t Topology) error {
	for _, want := range t.Streams {
		if err := ensureStream(ctx, js, want); err != nil {
			return err
		}
	}
	for _, c := range t.Consumers {
		if _, err := js.CreateOrUpdateConsumer(ctx, c.Stream, c.Config); err != nil {
			return fmt.Errorf("ensure consumer %s: %w", c.Config.Durable, err)
		}
	}
	return nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err := js.CreateStream(ctx, want); err != nil {
			return fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	differ, err := differences(s.CachedInfo().Config, want)
	if err != nil || len(differ) == 0 {
		return err
	}
	if _, err := js.UpdateStream(ctx, want); err != nil {
		return fmt.Errorf("update stream %s (%s): %w", want.Name, strings.Join(differ, ", "), err)
	}
	return nil
}

// differences lists the changeable settings that differ. A difference in any other setting is a *DriftError.
func differences(have, want jetstream.StreamConfig) ([]string, error) {
	h, err := fields(have)
	if err != nil {
		return nil, err
	}
	w, err := fields(want)
	if err != nil {
		return nil, err
	}
	var differ []string
	all := maps.Clone(h)
	maps.Copy(all, w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case bytes.Equal(h[name], w[name]), slices.Contains(ignored, name):
		case slices.Contains(changeable, name):
			differ = append(differ, name)
		default:
			return nil, &DriftError{Asset: "stream " + want.Name, Field: name, Have: show(h[name]), Want: show(w[name])}
		}
	}
	return differ, nil
}

// fields gives a stream's settings by their names on the wire, so that a setting this code does not know is compared as well.
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

// Tries at boot are short and bounded: after a cluster restarts, the first call to its API may hang for good.
const (
	bootTry   = 3 * time.Second
	bootPause = 250 * time.Millisecond
)

// EnsureAtBoot repeats Ensure in short tries until it succeeds, a DriftError ends it, or ctx does.
func EnsureAtBoot(ctx context.Context, js jetstream.JetStream, t Topology) error {
	for {
		err := ensureTry(ctx, js, t)
		var drift *DriftError
		if err == nil || errors.As(err, &drift) {
			return err
		}
		var api *jetstream.APIError
		if errors.As(err, &api) && api.Code < 500 && api.Code != 408 {
			return err // the server understood and said no: it will say so again
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(bootPause):
		}
	}
}

func ensureTry(ctx context.Context, js jetstream.JetStream, t Topology) error {
	try, cancel := context.WithTimeout(ctx, bootTry)
	defer cancel()
	return Ensure(try, js, t)
}
