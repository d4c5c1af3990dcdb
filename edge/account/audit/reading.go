package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// maxPage bounds one piece of the log.
const maxPage = 100

// Audit reads an account's audit log, newest first, from a cursor; an empty one begins at the newest record.
// limit is bounded by maxPage; below 1 it is maxPage. Its errors are ErrCursor, account.ErrNoAccount for a
// text that is not an account's id, and natsconf.ErrUnavailable.
func (l *Log) Audit(ctx context.Context, id, cursor string, limit int) (Page, error) {
	if limit < 1 || limit > maxPage {
		limit = maxPage
	}
	if !account.IsID(id) && id != ServiceLog {
		return Page{}, account.ErrNoAccount
	}
	from, err := l.from(ctx, id, cursor)
	if err != nil {
		return Page{}, err
	}
	var page Page
	for n := from; n > 0; n-- {
		if len(page.Records) == limit {
			page.Next = strconv.FormatInt(n, 10)
			break
		}
		r, err := l.read(ctx, id, n)
		if errors.Is(err, natsconf.ErrNotFound) {
			if n, err = l.older(ctx, id, n); err != nil {
				return Page{}, err
			}
			n++ // the loop's next is that one
			continue
		}
		if errors.Is(err, natsconf.ErrUnavailable) {
			return Page{}, err
		}
		if err == nil {
			page.Records = append(page.Records, r)
		} else if err = l.LeaveOut(fmt.Errorf("%s: %w", subject(id, n), err)); err != nil {
			return Page{}, err
		}
	}
	return page, nil
}

// older returns the number of the record before a missing one: 0, since those before it have aged out as
// well, unless somebody has written a record past the next number.
func (l *Log) older(ctx context.Context, id string, missing int64) (int64, error) {
	m, err := l.conn.Next(ctx, topology.StreamAudit, subjects(id), 1)
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	if first, err := Decode(m.Data); err == nil && first.Number > missing {
		return 0, nil
	}
	return l.below(ctx, id, missing)
}

// from returns the number of the first record to read.
func (l *Log) from(ctx context.Context, id, cursor string) (int64, error) {
	if cursor == "" {
		return l.Last(ctx, id)
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q", ErrCursor, cursor)
	}
	return n, nil
}

// Note writes a record of an act that changed nothing in the account, such as sending a callback again. The
// record is durable when it returns. It judges no right: the code that performed the act has done so. The
// error is account.ErrNoAccount for a text that is not an account's id.
func (l *Log) Note(ctx context.Context, by access.Actor, id, what, on string,
	detail map[string]string) error {
	if !account.IsID(id) && id != ServiceLog {
		return account.ErrNoAccount
	}
	done, err := l.Turn(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	r, err := l.Draft(ctx, Record{Account: id, Who: by, What: what, On: on, Detail: detail})
	if err != nil {
		return err
	}
	return l.write(ctx, r)
}

// NoteOnceADay is Note for what somebody may do all day: if the account's last record says the same of the
// same actor and day (UTC), there is no second one.
func (l *Log) NoteOnceADay(ctx context.Context, by access.Actor, id, what string) error {
	const day = 24 * time.Hour
	if m, err := l.conn.Last(ctx, topology.StreamAudit, subjects(id)); err == nil {
		r, err := Decode(m.Data)
		if err == nil && r.What == what && r.Who == by && r.At.Truncate(day).Equal(l.now().Truncate(day)) {
			return nil
		}
	}
	return l.Note(ctx, by, id, what, "", nil)
}

// MadeBy returns who made an account and when, according to its audit log. known is false if the log does not
// reach back that far.
func (l *Log) MadeBy(ctx context.Context, id string) (by access.Actor, at time.Time, known bool, err error) {
	if !account.IsID(id) {
		return access.Actor{}, time.Time{}, false, account.ErrNoAccount
	}
	r, err := l.read(ctx, id, 1)
	if errors.Is(err, natsconf.ErrNotFound) {
		return access.Actor{}, time.Time{}, false, nil
	}
	if errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrNewer) {
		return access.Actor{}, time.Time{}, false, err
	}
	if err != nil || r.What != AccountCreated { // or no verifyd wrote it
		return access.Actor{}, time.Time{}, false, nil //nolint:nilerr // it is not known
	}
	return r.Who, r.At, true, nil
}

// Each calls do with every record of every account that can be read, the oldest first. The error is
// natsconf.ErrNewer if a newer build has written one.
func (l *Log) Each(ctx context.Context, do func(Record)) error {
	_, last, err := l.conn.Bounds(ctx, topology.StreamAudit)
	if err != nil {
		return err
	}
	return l.conn.Pages(ctx, topology.StreamAudit, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			r, err := Decode(m.Data())
			if errors.Is(err, natsconf.ErrNewer) {
				return err
			}
			if err == nil {
				do(r)
			}
		}
		return nil
	})
}
