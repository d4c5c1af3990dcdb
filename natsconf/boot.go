package natsconf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// Tries at boot are short and bounded: after a cluster restarts, the first call to its API may hang
// permanently.
const (
	bootTry   = 3 * time.Second
	bootFirst = 1500 * time.Millisecond // people read soon what is waited for
	bootPause = 250 * time.Millisecond
)

// AtBoot repeats a call in short tries until it succeeds, fails with a lasting error, or ctx ends: while a
// cluster elects the leader of a stream, no server answers for it. The waiting functions are called once,
// with the first try's error, when there is another try. The error after ctx's deadline is ErrUnavailable.
func AtBoot(ctx context.Context, do func(ctx context.Context) error, lasting func(error) bool,
	waiting ...func(error)) error {
	for within := bootFirst; ; within = bootTry {
		err := explained(try(ctx, within, do))
		if err == nil || lasting(err) {
			return err
		}
		for _, report := range waiting {
			report(err)
		}
		waiting = nil
		switch over := wait.Pause(ctx, bootPause); {
		case errors.Is(over, context.DeadlineExceeded):
			return fmt.Errorf("%w: no answer in time (last: %w)", ErrUnavailable, err)
		case over != nil:
			return fmt.Errorf("%w (last: %w)", over, err)
		}
	}
}

// HoldsStoreAtBoot reports whether the servers hold a store: a stream that every store has had since its
// first start. It asks in short tries, as AtBoot does.
func HoldsStoreAtBoot(ctx context.Context, c *Conn, waiting ...func(error)) (held bool, err error) {
	err = AtBoot(ctx, func(ctx context.Context) error {
		_, err := c.JS.Stream(ctx, topology.StreamCompletions)
		held = err == nil
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	}, Lasting, waiting...)
	return held, err
}

func try(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return do(ctx)
}

const (
	// codeReplicasNotSupported is the answer of a server that is not part of a cluster.
	codeReplicasNotSupported jetstream.ErrorCode = 10074
	// codeNoPeers is a cluster's answer if too few servers can keep a copy. The text has the reasons.
	codeNoPeers jetstream.ErrorCode = 10005
)

// explained adds what is likely missing to the error of a server without JetStream, which may have it soon.
func explained(err error) error {
	api, _ := errors.AsType[*jetstream.APIError](err)
	if noResponders(err) || api != nil && (api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled ||
		api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: JetStream must be enabled on these servers, and for this credential's account",
			err)
	}
	return err
}

// Lasting reports whether the server understood and refused: it will refuse again.
func Lasting(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if ok && joining(api) {
		return false
	}
	return ok && (api.Code < 500 && api.Code != 408 || api.ErrorCode == codeReplicasNotSupported)
}

// LacksServers reports whether a stream was refused since there are fewer servers than it is to have copies.
func LacksServers(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && Lasting(err) && (api.ErrorCode == codeReplicasNotSupported || api.ErrorCode == codeNoPeers)
}

// joining reports whether a cluster counts servers that it has not heard of since its own start: offline
// ones, or "a miscellaneous issue", its term for those of which it knows nothing at all.
func joining(e *jetstream.APIError) bool {
	return e.ErrorCode == codeNoPeers &&
		(strings.Contains(e.Description, "peer offline") ||
			strings.Contains(e.Description, "miscellaneous issue"))
}
