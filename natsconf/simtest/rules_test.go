package simtest_test

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	sessionsStream = "KV_sessions"
	expect         = jetstream.ExpectedLastSubjSeqHeader
)

// rules are what verifyd depends on.
var rules = map[string]func(*observer){
	"a fact is written once": func(o *observer) {
		o.publish("completion.a", "1", expect, "0")
		o.publish("completion.a", "2", expect, "0")
		o.publish("completion.a", "3")
		o.publish("completion.a", "4", expect, "1")
		o.publish("claim.a.1", "5", expect, "7")
		o.last(topology.StreamCompletions, "completion.a")
		o.last(topology.StreamCompletions, "claim.a.1")
	},
	"a stream takes other subjects": func(o *observer) {
		s, err := o.conn.JS.CreateStream(o.ctx, jetstream.StreamConfig{
			Name: "ONE", Subjects: []string{"one.*"},
		})
		o.must(err)
		o.publish("one.a", "1")
		o.publish("two.a", "2")
		config := s.CachedInfo().Config
		config.Subjects = []string{"two.*"}
		_, err = o.conn.JS.UpdateStream(o.ctx, config)
		o.must(err)
		o.publish("one.a", "3")
		o.publish("two.a", "4")
		o.last("ONE", "one.a")
		o.last("ONE", "two.a")
	},
	"a message of a stream is heard": func(o *observer) {
		heard, err := o.conn.NC.SubscribeSync("completion.*")
		o.must(err)
		o.publish("completion.a", "1", "Name", "value")
		o.publish("claim.a.1", "2")
		ctx, cancel := context.WithTimeout(o.ctx, 10*time.Second)
		defer cancel()
		m, err := heard.NextMsgWithContext(ctx)
		o.must(err)
		o.note("heard %s %q, %v, a reply %t", m.Subject, m.Data, m.Header["Name"], m.Reply != "")
		o.must(heard.Unsubscribe())
	},
	"a conditional write": func(o *observer) {
		o.publish("$KV.sessions.a.b", "1", expect, "0")
		o.publish("$KV.sessions.a.c", "2", expect, "0")
		o.publish("$KV.sessions.a.b", "3", expect, "2")
		o.publish("$KV.sessions.a.b", "4", expect, "1")
		o.last(sessionsStream, "$KV.sessions.a.b")
		_, err := o.conn.Next(o.ctx, sessionsStream, "$KV.sessions.a.b", 1)
		o.note("the one before is gone: %v", err)
	},
	"a message id": func(o *observer) {
		o.publish("session.opened.a", "1", jetstream.MsgIDHeader, "x")
		o.publish("session.opened.a", "2", jetstream.MsgIDHeader, "x")
		o.publish("session.opened.a", "3", jetstream.MsgIDHeader, "y")
	},
	"a TTL of its own": func(o *observer) {
		begun := time.Now()
		o.publish("$KV.sessions.redeemed.a", "1", jetstream.MsgTTLHeader, "3s")
		o.last(sessionsStream, "$KV.sessions.redeemed.a")
		o.gone(sessionsStream, "$KV.sessions.redeemed.a", begun.Add(3*time.Second))
		o.publish("$KV.sessions.redeemed.a", "2", expect, "0", jetstream.MsgTTLHeader, "1h0m0s")
		o.publish("$KV.accounts.a", "3", jetstream.MsgTTLHeader, "1s")
	},
	"a schedule": func(o *observer) {
		at := time.Now().Truncate(time.Second).Add(4 * time.Second) // a header holds whole seconds
		schedule := natsconf.ScheduleMsg("schedule.a", "retry.a", at, []byte("hint"))
		o.publish("schedule.a", "hint", jetstream.ScheduleHeader,
			schedule.Header.Get(jetstream.ScheduleHeader), jetstream.ScheduleTargetHeader, "retry.a",
			"Own", "1")
		o.last(topology.StreamRetries, "schedule.a")
		o.gone(topology.StreamRetries, "schedule.a", at)
		m, err := o.conn.Last(o.ctx, topology.StreamRetries, "retry.a")
		o.raw("fired", m, err)
		if m != nil {
			m.Header.Del("Nats-Time-Stamp")
			o.note("headers %v", m.Header)
		}
	},
	"a schedule replaces the one before, and one that is late fires": func(o *observer) {
		later := natsconf.ScheduleMsg("schedule.a", "retry.a", time.Now().Add(time.Hour), []byte("old"))
		late := natsconf.ScheduleMsg("schedule.a", "retry.a", time.Now().Add(-time.Hour), []byte("new"))
		for _, m := range []*nats.Msg{later, late} {
			o.publish("schedule.a", string(m.Data), jetstream.ScheduleHeader,
				m.Header.Get(jetstream.ScheduleHeader), jetstream.ScheduleTargetHeader, "retry.a")
		}
		o.gone(topology.StreamRetries, "schedule.a", anyTime)
		o.last(topology.StreamRetries, "retry.a")
	},
	"a schedule that is refused": func(o *observer) {
		for subject, target := range map[string]string{
			"completion.a": "completion.b", "schedule.a": "elsewhere", "schedule.b": "schedule.b",
		} {
			m := natsconf.ScheduleMsg(subject, target, time.Now().Add(time.Hour), nil)
			_, err := o.conn.JS.PublishMsg(o.ctx, m)
			o.note("%s on %s: %s", subject, target, describe(err))
		}
		slices.Sort(o.seen)
	},
	"single reads": func(o *observer) {
		first, last, err := o.conn.Bounds(o.ctx, topology.StreamRetries)
		o.note("bounds %d %d %v", first, last, err)
		o.last(topology.StreamRetries, ">")
		for _, s := range []string{"retry.a", "retry.b", "schedule.a", "retry.a"} {
			o.publish(s, "on "+s)
		}
		o.last(topology.StreamRetries, "retry.*")
		o.last(topology.StreamRetries, "retry.c")
		o.last(topology.StreamRetries, ">")
		for from := range uint64(6) {
			m, err := o.conn.Next(o.ctx, topology.StreamRetries, "retry.*", from)
			o.raw("next", m, err)
		}
		first, last, err = o.conn.Bounds(o.ctx, topology.StreamRetries)
		o.note("bounds %d %d %v", first, last, err)
		_, err = o.conn.Last(o.ctx, "NONE", "retry.a")
		o.note("no such stream: %s", describe(err))
		o.publish("nowhere", "")
	},
	"readings": func(o *observer) {
		for i, s := range []string{"a.a", "a.b", "b.a", "a.a", "a.c"} {
			o.publish("$KV.sessions."+s, string(rune('0'+i)))
		}
		msgs, err := o.conn.Newest(o.ctx, sessionsStream, "$KV.sessions.a.*", "$KV.sessions.b.*")
		o.messages("newest", msgs, err)
		msgs, err = o.conn.Range(o.ctx, sessionsStream, "$KV.sessions.a.*", 2, 4)
		o.messages("range", msgs, err)
		msgs, all, err := o.conn.Head(o.ctx, sessionsStream, "$KV.sessions.a.*", 2)
		o.messages("head", msgs, err)
		o.note("of %d", all)
		msgs, err = o.conn.Newest(o.ctx, sessionsStream, "$KV.sessions.x.*")
		o.messages("newest", msgs, err)
		tail, done, err := o.conn.Tail(o.ctx, sessionsStream)
		o.must(err)
		defer done()
		o.publish("$KV.sessions.a.d", "data", "Own", "1")
		m, err := tail.Next(jetstream.FetchMaxWait(5 * time.Second))
		o.must(err)
		o.note("tail: %s %q %v", m.Subject(), m.Data(), m.Headers())
	},
	"a batch is all or nothing": func(o *observer) {
		fact := func(subject, data string) *nats.Msg {
			return &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{expect: {"0"}}}
		}
		batch := func(msgs ...*nats.Msg) {
			err := o.conn.PublishBatch(o.ctx, topology.StreamCompletions, msgs...)
			o.note("batch of %d: %s", len(msgs), describe(err))
		}
		batch(fact("completion.a", "1"), fact("completion.b", "2"), fact("claim.a.1", "3"))
		batch(fact("completion.c", "4"), fact("completion.a", "5"), fact("completion.d", "6"))
		batch(fact("completion.e", "7"), fact("completion.e", "8"))
		batch(&nats.Msg{Subject: "completion.b", Data: []byte("9")}, fact("completion.f", "10"))
		for _, s := range []string{"a", "b", "c", "d", "e", "f"} {
			o.last(topology.StreamCompletions, "completion."+s)
		}
		o.publish("completion.g", "11", "Nats-Batch-Id", "x", "Nats-Batch-Sequence", "2",
			"Nats-Batch-Commit", "1")
		o.publish("session.opened.a", "12", "Nats-Batch-Id", "y", "Nats-Batch-Sequence", "1",
			"Nats-Batch-Commit", "1")
	},
	"an unacknowledged message is redelivered": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: ackWait})
		o.publish("retry.a", "1")
		begun := time.Now()
		first := o.take(c, anyTime)
		o.none(c)
		second := o.take(c, begun.Add(ackWait))
		o.must(first.Ack()) // an acknowledgement of an earlier delivery counts
		o.state(0)
		o.must(second.Nak()) // and this one has no effect any more
		o.none(c)
		o.state(0)
	},
	"progress postpones redelivery": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: ackWait})
		o.publish("retry.a", "1")
		m := o.take(c, anyTime)
		time.Sleep(ackWait / 2) // the rule is about that time
		begun := time.Now()
		o.must(m.InProgress())
		o.take(c, begun.Add(ackWait))
	},
	"negative acknowledgements": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: ackWait})
		for _, s := range []string{"a", "b", "c"} {
			o.publish("retry."+s, s)
		}
		o.counted(3)
		// The server has it before the next request. One without an answer may come after that.
		_, err := o.conn.NC.RequestWithContext(o.ctx, o.take(c, anyTime).Reply(), []byte("-NAK"))
		o.must(err)
		begun := time.Now()
		o.must(o.take(c, anyTime).NakWithDelay(ackWait + time.Second)) // redelivered before new messages
		o.must(o.take(c, anyTime).Ack())
		o.must(o.take(c, anyTime).DoubleAck(o.ctx))
		o.none(c)
		o.state(1)
		o.take(c, begun.Add(ackWait+time.Second))
	},
	"a terminated message": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: ackWait})
		o.publish("retry.a", "1")
		o.publish("retry.b", "2")
		o.counted(2)
		o.must(o.take(c, anyTime).TermWithReason("it cannot be read"))
		o.must(o.take(c, anyTime).Ack())
		o.state(0)
		time.Sleep(ackWait + time.Second) // nothing may come: it would be redelivered by then
		o.none(c)
	},
	"a maximum of pending messages": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: 30 * time.Second, MaxAckPending: 2})
		for _, s := range []string{"a", "b", "c"} {
			o.publish("retry."+s, s)
		}
		o.counted(3)
		m := o.take(c, anyTime)
		o.take(c, anyTime)
		o.state(2)
		_, err := c.Next(jetstream.FetchMaxWait(time.Second))
		o.note("a third: %s", describe(err))
		o.must(m.Ack())
		o.take(c, anyTime)
	},
	"a message that is replaced while pending": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{AckWait: ackWait})
		o.publish("retry.a", "1")
		o.take(c, anyTime)
		o.publish("retry.a", "2")
		o.must(o.take(c, anyTime).Ack())
		time.Sleep(ackWait + time.Second) // nothing may come: it would be redelivered by then
		o.none(c)
		o.state(0)
	},
	"missing consumers and streams": func(o *observer) {
		_, err := o.conn.JS.Consumer(o.ctx, topology.StreamRetries, "none")
		o.note("%s", describe(err))
		_, err = o.conn.JS.Stream(o.ctx, "NONE")
		o.note("%s", describe(err))
		c := o.consume(jetstream.ConsumerConfig{})
		o.none(c)
		_, err = c.Next(jetstream.FetchMaxWait(time.Second))
		o.note("%s", describe(err))
		o.note("the default is %s", c.CachedInfo().Config.AckWait)
		o.must(o.conn.JS.DeleteConsumer(o.ctx, topology.StreamRetries, "c"))
		_, err = c.Next(jetstream.FetchMaxWait(time.Second))
		o.note("%s", describe(err))
	},
	"two requests take turns": func(o *observer) {
		c := o.consume(jetstream.ConsumerConfig{})
		one, err := c.Fetch(2, jetstream.FetchMaxWait(5*time.Second))
		o.must(err)
		other, err := c.Fetch(2, jetstream.FetchMaxWait(5*time.Second))
		o.must(err)
		o.asked(c, 2)
		for _, s := range []string{"a", "b", "c", "d"} {
			o.publish("retry."+s, s)
		}
		for _, who := range []jetstream.MessageBatch{one, other} {
			for m := range who.Messages() {
				o.note("%s", m.Subject())
			}
			o.note("%v", who.Error())
		}
	},
}
