package store

import (
	"context"
	"fmt"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	sessionstore "verifyd/sessions/store"
)

// What keeps an outcome from leaving the store before its delivery has ended: settings that do not fit are
// refused here, pauses by package pauses, and the dispatcher ends what is delayed anyway (its doc comment).

// OldestOf returns a function that returns since when the oldest open delivery has been waiting.
func OldestOf(st *sessionstore.Store) func(context.Context) (time.Time, error) {
	return func(ctx context.Context) (time.Time, error) {
		b, err := st.Backlog(ctx)
		return b.Oldest, err
	}
}

// MayShorten refuses a retention that is so short that an outcome which waits for its delivery would leave at
// once, or before its delivery is ended.
func MayShorten(ctx context.Context, conn *natsconf.Conn, stream string, to time.Duration) error {
	if stream != topology.StreamCompletions {
		return nil
	}
	// it unseals nothing
	oldest, err := OldestOf(sessionstore.New(sessionstore.Config{Conn: conn, Key: secretbox.Key{}}))(ctx)
	if err != nil || oldest.IsZero() {
		return err
	}
	if err := conn.Clock.Judge(ctx); err != nil {
		return err
	}
	if age := conn.Clock.Now().Sub(oldest); age > to-config.RetentionSpare {
		return config.Usage(fmt.Errorf(
			"VERIFYD_KEEP_RESULTS (--keep-results): %s is too short now: a callback has been waiting since "+
				"%s, and its outcome would be deleted before it has ended; "+
				"keep results for at least %s until it has ended (verifyd deliveries list --state due), or "+
				"resume the host that it waits for",
			to, oldest.Format(time.RFC3339), (age + 2*config.RetentionSpare).Truncate(time.Hour)))
	}
	return nil
}
