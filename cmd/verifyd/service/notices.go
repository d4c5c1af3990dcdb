package service

import (
	"context"
	"fmt"
	"maps"
	"time"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/dispatcher"
	"verifyd/dispatcher/callback"
	"verifyd/edge/account"
	"verifyd/edge/account/notice"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
)

// noticeTimeout bounds a POST of a notice. It is not the callbacks' time-out, which operators may raise.
const noticeTimeout = 10 * time.Second

// addNotices adds the actors that notify accounts, with what edge and dispatcher know.
func addNotices(p *Program) {
	var sources []func() []notice.Notice
	if p.quota != nil {
		sources = append(sources, quotaNotices(p))
	}
	if p.Config.Dispatcher {
		sources = append(sources, keyNotices(p))
		client := p.Config.CallbackClient(noticeTimeout)
		sender := notice.NewSender(notice.SenderConfig{
			Conn: p.Store.Conn, Directory: p.Mirror, Log: p.Config.Log, Metrics: p.Registry, Now: p.Clock,
			Post: func(ctx context.Context, n notice.Post) error {
				to, err := p.Config.CallbackPolicy.Parse(n.URL)
				if err != nil {
					return err
				}
				return post(ctx, client, callback.Message{
					URL: to, ID: n.ID, Body: n.Body, Secrets: n.Secrets, At: n.At,
				})
			},
		})
		p.AccountAlarms = alarm.New(alarm.Config{
			Conn: p.Store.Conn, Stream: topology.StreamNotices, Prefix: "notice-open.",
			Name: "receivers of accounts", Sources: []func(context.Context) []alarm.Condition{
				p.Receivers.ofAccounts,
			},
			Notify: notifyReceiver(notice.NewStore(p.Store.Conn), p.Receivers), Log: p.Config.Log,
			Now: p.Config.Now,
		})
		p.add("notice sender", whileOpen{p.stateMonitor, sender})
		p.add("notice follower", whileOpen{p.stateMonitor,
			&notice.Follower{Conn: p.Store.Conn, Log: p.Config.Log, Now: p.Clock}})
		p.add("receivers of accounts", p.AccountAlarms)
	}
	p.add("notice watch", &notice.Watch{Queue: p.notices, Sources: sources})
}

// post sends one message, over a connection of its own.
func post(ctx context.Context, client *callback.Client, m callback.Message) error {
	request, err := client.PrepareMessage(m)
	if err != nil {
		return err
	}
	conn, err := client.Dial(ctx, m.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if answer := conn.Send(ctx, request); answer.Verdict != facts.VerdictDelivered {
		return fmt.Errorf("%s: %s", answer.Verdict, answer.Detail)
	}
	return nil
}

// notifyReceiver notifies an account that its receiver fails, or that it was seen to work again. One that was
// sent nothing for a while has no second notice: nobody knows whether it works.
func notifyReceiver(store *notice.Store, seen *receivers) func(context.Context, alarm.Event) error {
	return func(ctx context.Context, e alarm.Event) error {
		n := receiverNotice(e)
		receiver, _ := e.Data["receiver"].(string)
		if n.Type == notice.ReceiverRecovered && !seen.worked(n.Account, receiver) {
			return nil
		}
		if err := store.Raise(ctx, n); notice.Later(err) {
			return err
		}
		return nil
	}
}

// receiverNotice is an account's notice about a receiver. Its cause is the event's own id, which both of its
// states share.
func receiverNotice(e alarm.Event) notice.Notice {
	id, _ := e.Data["account"].(string)
	receiver, _ := e.Data["receiver"].(string)
	if e.Status == alarm.Resolved {
		return notice.New(id, notice.ReceiverRecovered, e.ID, e.At, receiver+" accepts callbacks again.",
			map[string]any{"receiver": receiver, "failing_since": e.Since})
	}
	data := maps.Clone(e.Data)
	delete(data, "account")
	return notice.New(id, notice.ReceiverFailing, e.ID, e.At, e.Detail, data)
}

// outcomeNotice returns an account's notice about a callback that waits for a person; one that is sent again
// by itself does not. The first of an hour represents all of the hour: a receiver that is down causes
// thousands. It is pure.
func outcomeNotice(e dispatcher.AttemptEnd, now time.Time) (n notice.Notice, ok bool) {
	if e.Again {
		return notice.Notice{}, false
	}
	why := "nobody knows whether it arrived"
	switch e.Verdict {
	case facts.VerdictUnknown:
	case facts.VerdictUndeliverable:
		why = "it could not be sent until the deadline"
	default:
		return notice.Notice{}, false
	}
	return notice.New(e.Account, notice.OutcomeWaiting, now.UTC().Format("2006-01-02T15"), now,
		fmt.Sprintf("The callback of session %s to %s ended %s (%s): %s. Decide whether it is sent again. "+
			"Others that end like this within the hour have no notice of their own.", e.Session, e.Receiver,
			e.Verdict, e.Class, why),
		map[string]any{"session": e.Session, "receiver": e.Receiver, "verdict": e.Verdict,
			"class": e.Class}), true
}

// quotaNotices returns the notices of accounts about their quotas, as this process's edge counts them.
func quotaNotices(p *Program) func() []notice.Notice {
	return func() (all []notice.Notice) {
		for _, s := range p.quota.Standings() {
			if n, ok := notice.OfQuota(s.Account, s.Used, s.Limit, s.ResetAt, p.Clock()); ok {
				all = append(all, n)
			}
		}
		return all
	}
}

// keyNotices returns the notices of accounts about their keys.
func keyNotices(p *Program) func() []notice.Notice {
	const page = 1000
	return func() (all []notice.Notice) {
		for after, more := "", true; more; {
			var accounts []account.Account
			accounts, more = p.Mirror.Accounts("", after, page)
			for _, a := range accounts {
				after = a.Name
				if !a.InService() {
					continue
				}
				for _, k := range p.Mirror.Keys(a.ID) {
					if n, ok := notice.OfKey(k, p.Clock()); ok {
						all = append(all, n)
					}
				}
			}
		}
		return all
	}
}
