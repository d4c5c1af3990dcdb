package simtest

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// pull is a request for messages.
type pull struct {
	reply     string
	left, got int
	noWait    bool
	heartbeat time.Duration
	beat      *time.Timer
	end       *time.Timer
}

// pull handles a request for messages.
func (b *Broker) pull(stream, name string, m wireMsg) {
	s := b.streams[stream]
	if s == nil || s.consumers[name] == nil {
		b.status(m.reply, 503, "", nil)
		return
	}
	c := s.consumers[name]
	var r struct {
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		NoWait    bool          `json:"no_wait"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}
	if err := json.Unmarshal(m.data, &r); err != nil {
		b.options.Unknown("a pull: " + err.Error())
		return
	}
	c.used()
	if r.NoWait && r.Expires == 0 && c.left()+len(c.again) == 0 {
		b.status(m.reply, 404, "No Messages", nil)
		return
	}
	p := &pull{reply: m.reply, left: max(1, r.Batch), noWait: r.NoWait, heartbeat: r.Heartbeat}
	if r.Expires > 0 {
		p.end = time.AfterFunc(r.Expires, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if c.forget(p) {
				b.status(p.reply, 408, "Request Timeout", pendingFields(p))
			}
		})
	}
	if p.heartbeat > 0 {
		p.beat = time.AfterFunc(p.heartbeat, func() { c.beat(p) })
	}
	c.waiting = append(c.waiting, p)
	c.deliver()
}

func pendingFields(p *pull) nats.Header {
	return nats.Header{"Nats-Pending-Messages": {strconv.Itoa(p.left)}, "Nats-Pending-Bytes": {"0"}}
}

// beat sends an idle heartbeat to a waiting request.
func (c *consumer) beat(p *pull) {
	b := c.of.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(c.waiting, p) {
		b.status(p.reply, 100, "Idle Heartbeat", nats.Header{
			"Nats-Last-Consumer": {strconv.FormatUint(c.delivered, 10)},
			"Nats-Last-Stream":   {strconv.FormatUint(c.from-1, 10)},
		})
		p.beat.Reset(p.heartbeat)
	}
}

func (p *pull) stop() {
	for _, t := range []*time.Timer{p.beat, p.end} {
		if t != nil {
			t.Stop()
		}
	}
}

// forget ends a request, and reports whether it was waiting.
func (c *consumer) forget(p *pull) bool {
	i := slices.Index(c.waiting, p)
	if i < 0 {
		return false
	}
	p.stop()
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return true
}
