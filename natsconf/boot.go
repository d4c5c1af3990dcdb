package natsconf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
)

// Tries at boot are short and bounded: after a cluster restarts, the first call to its API may hang
// permanently.
const (
	bootTry   = 3 * time.Second
	bootPause = 250 * time.Millisecond
)

// AtBoot repeats a call in short tries until it succeeds, fails with a lasting error, or ctx ends: while a
// cluster elects the leader of a stream, no server answers for it. The waiting functions are called once,
// with the first try's error, when there is another try. The error after ctx's deadline is ErrUnavailable.
func AtBoot(ctx context.Context, do func(ctx context.Context) error, lasting func(error) bool,
	waiting ...func(error)) error {
	for {
		err := try(ctx, do)
		if err == nil || lasting(err) {
			return err
		}
		for _, report := range waiting {
			report(err)
		}
		waiting = nil
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%w: no answer in time (last: %w)", ErrUnavailable, err)
			}
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(bootPause):
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

func try(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bootTry)
	defer cancel()
	return do(ctx)
}

const (
	// codeReplicasNotSupported is the answer of a server that is not part of a cluster.
	codeReplicasNotSupported jetstream.ErrorCode = 10074
	// codeNoPeers is a cluster's answer if too few servers can keep a copy. The text has the reasons.
	codeNoPeers jetstream.ErrorCode = 10005
)

// Lasting reports whether the server understood and refused: it will refuse again.
func Lasting(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if ok && joining(api) {
		return false
	}
	return ok && (api.Code < 500 && api.Code != 408 || api.ErrorCode == codeReplicasNotSupported)
}

// joining reports whether a cluster counts servers that it has not heard of since its own start: offline
// ones, or "a miscellaneous issue", its term for those of which it knows nothing at all.
func joining(e *jetstream.APIError) bool {
	return e.ErrorCode == codeNoPeers &&
		(strings.Contains(e.Description, "peer offline") ||
			strings.Contains(e.Description, "miscellaneous issue"))
}
