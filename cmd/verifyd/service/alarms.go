package service

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/dispatcher/callback"
	"verifyd/edge/limit"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/storetime"
	sessionstore "verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

const (
	// storeRaise is the share of the store's limit from which operators are notified; below storeResolve the
	// event is over.
	storeRaise, storeResolve = 0.8, 0.75
	// quotaShare is the part of an account's monthly quota from which operators are notified.
	quotaShare = 0.8
	// BacklogGrace is by how much the oldest delivery may outlast the retry deadline.
	BacklogGrace = 5 * time.Minute
	// NetworkGrace is how long an identity network may be away before operators are notified: a provider that
	// restarts is not an event.
	NetworkGrace = 30 * time.Second
	// DegradedGrace is how long a stream may be without a leader, or without all of its copies, before
	// operators are notified: an election, and a server that restarts, are no events.
	DegradedGrace = 2 * time.Minute
	// QuietAfter is how long without another failure until that of a receiver, or that of unknown or stray
	// deliveries, counts as over.
	QuietAfter = 15 * time.Minute
	// maxReceivers bounds the receivers that are watched at once; others are watched as these become quiet.
	maxReceivers = 10_000
	// maxOfAccount bounds those of one account that it is notified of.
	maxOfAccount = 20
	// workedFor is for how long it is known that a receiver accepted a callback after it failed: longer than
	// it takes until its failure counts as over.
	workedFor = 24 * time.Hour
	// failingFor is the minimum time for which a receiver counts as failing to its account: one that fails
	// and recovers in turns must not make a notice each time.
	failingFor = 5 * time.Minute
)

// addAlarms adds the actor that notifies operators, with what edge and dispatcher know.
func (p *Program) addAlarms() {
	sources := []func(context.Context) []alarm.Condition{storeWatch(p.gauge), watchStreams(p),
		watchNetworks(p), p.Unreadables.Conditions, p.copyWatch,
		watchClock(p.Store.Conn.Clock), recordsWatch(p)}
	if p.quota != nil {
		sources = append(sources, quotaWatch(p.quota))
	}
	if p.Config.Dispatcher {
		sources = append(sources, p.Receivers.conditions, watchBacklog(p, p.sessions),
			strayWatch(p.sender.Strays, p.Clock))
	}
	c := alarm.Config{Conn: p.Store.Conn, Sources: sources, Log: p.Config.Log, Metrics: p.Registry,
		Now: p.Config.Now, Announce: alarm.ToOperators(p.Store.Conn, p.Config.Log)}
	if p.Config.Alarms.URL != (urlpolicy.URL{}) {
		c.Notify = p.postAlarm
	}
	p.Alarms = alarm.New(c)
	p.add("alarms", p.Alarms)
}

// postAlarm posts an event, through the guard that callbacks go through.
func (p *Program) postAlarm(ctx context.Context, e alarm.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if err := post(ctx, p.Config.AlarmClient(), callback.Message{
		URL: p.Config.Alarms.URL, ID: e.ID + "_" + string(e.Status), Body: body,
		Secrets: []string{p.Config.Alarms.Secret}, At: p.Clock(),
	}); err != nil {
		return fmt.Errorf("post an event: %w", err)
	}
	return nil
}

// Clock returns the store's time once the store is open. Tests move it.
func (p *Program) Clock() time.Time { return p.Config.Now() }

// watchClock reports a machine whose clock is wrong.
func watchClock(clock *storetime.Clock) func(context.Context) []alarm.Condition {
	host, _ := os.Hostname() // empty: unknown
	return func(context.Context) []alarm.Condition {
		err := clock.Check()
		if err == nil {
			return nil
		}
		return []alarm.Condition{{Type: alarm.ClockOff, About: host, Detail: err.Error(),
			Data: map[string]any{"skew_seconds": clock.Skew().Seconds()}}}
	}
}

// storeWatch reports a store that fills up.
func storeWatch(g *storestate.Gauge) func(context.Context) []alarm.Condition {
	high := false
	return func(context.Context) []alarm.Condition {
		used, capacity := g.Use()
		share := storeRaise
		if high {
			share = storeResolve
		}
		if high = capacity > 0 && float64(used) >= share*float64(capacity); !high {
			return nil
		}
		return []alarm.Condition{{
			Type: alarm.StoreHigh, Detail: fmt.Sprintf("%d %% of the store's limit is used; from 90 "+
				"%% on no new sessions are accepted", 100*used/capacity),
			Data: map[string]any{"used_bytes": used, "limit_bytes": capacity},
		}}
	}
}

// lasting is since when things have been wrong at each look, by their names.
type lasting map[string]time.Time

// howLong returns for how long a thing has been wrong at each look; 0: it is not, or since this look.
func (l lasting) howLong(name string, wrong bool, now time.Time) time.Duration {
	if !wrong {
		delete(l, name)
		return 0
	}
	if l[name].IsZero() {
		l[name] = now
	}
	return now.Sub(l[name])
}

// watchStreams reports streams that have been without a leader, or without all of their copies, at each look
// for a while.
func watchStreams(p *Program) func(context.Context) []alarm.Condition {
	broken := lasting{}
	return func(context.Context) []alarm.Condition {
		var long []provision.StreamHealth
		for _, s := range p.Observer.Health().Streams {
			if broken.howLong(s.Name, !s.Whole(), p.Clock()) >= DegradedGrace {
				long = append(long, s)
			}
		}
		if len(long) == 0 {
			return nil
		}
		streams, servers := provision.Degraded(long)
		return []alarm.Condition{{
			Type: alarm.StoreDegraded, Detail: provision.DegradedText(streams, servers),
			Data: map[string]any{"streams": streams, "servers": servers},
		}}
	}
}

// watchNetworks reports identity networks that cannot be used for a while.
func watchNetworks(p *Program) func(context.Context) []alarm.Condition {
	away := lasting{}
	return func(context.Context) []alarm.Condition {
		var all []alarm.Condition
		for _, n := range p.nets.states() {
			err := n.available()
			if away.howLong(n.id, err != nil, p.Clock()) >= NetworkGrace {
				all = append(all, alarm.Condition{
					Type: alarm.NetworkUnavailable, About: n.id, Detail: err.Error(),
					Data: map[string]any{"network": n.id},
				})
			}
		}
		return all
	}
}

// quotaWatch reports accounts that come near their quota. The event stays open until the month is over, or
// their quota is raised.
func quotaWatch(q *limit.Quota) func(context.Context) []alarm.Condition {
	return func(context.Context) []alarm.Condition {
		var all []alarm.Condition
		for _, s := range q.Standings() {
			near := float64(s.Used) >= quotaShare*float64(s.Limit)
			all = append(all, alarm.Condition{
				Type: alarm.QuotaNear, About: s.Account, Until: s.ResetAt, Over: !near,
				Detail: fmt.Sprintf("the account has started %d of this month's %d sessions",
					s.Used, s.Limit),
				Data: map[string]any{"account": s.Account, "used": s.Used, "limit": s.Limit,
					"reset_at": s.ResetAt},
			})
		}
		return all
	}
}

// watchBacklog reports deliveries that outlast the retry deadline.
func watchBacklog(p *Program, store *sessionstore.Store) func(context.Context) []alarm.Condition {
	return func(ctx context.Context) []alarm.Condition {
		b, err := store.Backlog(ctx)
		if err != nil || b.Oldest.IsZero() {
			return nil // the dispatcher's meter reports an error
		}
		age := p.Clock().Sub(b.Oldest)
		if age < p.Config.CallbackRetryFor+BacklogGrace {
			return nil
		}
		return []alarm.Condition{{
			Type:   alarm.BacklogOld,
			Detail: fmt.Sprintf("the oldest delivery has been waiting for %s", age.Round(time.Second)),
			Data: map[string]any{"oldest_seconds": int64(age.Seconds()),
				"deliveries": b.Waiting + b.Given + b.Scheduled},
		}}
	}
}

// strayWatch reports deliveries that no dispatcher had, until none was found for a while.
func strayWatch(strays func() *fleet.Strays, now func() time.Time) func(context.Context) []alarm.Condition {
	return func(context.Context) []alarm.Condition {
		s := strays()
		if s == nil || now().Sub(s.Last) >= QuietAfter {
			return nil
		}
		return []alarm.Condition{{
			Type: alarm.DeliveriesStray, Detail: StraysText(*s),
			Data: map[string]any{"count": s.Found, "session": s.Session},
		}}
	}
}

// StraysText describes the deliveries that a dispatcher has handed in because none had them.
func StraysText(s fleet.Strays) string {
	return fmt.Sprintf("deliveries that had not ended were with no dispatcher, since their messages were "+
		"lost: %d since it started; they were handed in, the last, of session %s, at %s", s.Found, s.Session,
		s.Last.UTC().Format(time.TimeOnly))
}
