package simtest

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	errNoStream   = &refusal{404, 10059, "stream not found"}
	errNoConsumer = &refusal{404, 10014, "consumer not found"}
	errNoMessage  = &refusal{404, 10037, "no message found"}
)

// apiLevel is that of nats-server 2.12: atomic batches, schedules.
const apiLevel = 2

// request answers a request to the API of JetStream.
func (b *Broker) request(m wireMsg, fault Fault) {
	words := strings.Split(strings.TrimPrefix(m.subject, "$JS.API."), ".")
	var answer map[string]any
	switch {
	case m.subject == "$JS.API.INFO":
		answer = map[string]any{"api": map[string]any{"level": apiLevel}}
	case words[0] == "DIRECT" && len(words) > 2:
		b.direct(words[2], strings.Join(words[3:], "."), m, fault)
		return
	case words[0] == "STREAM" && len(words) == 3:
		answer = b.streamRequest(words[1], words[2], m)
	case strings.HasPrefix(m.subject, "$JS.API.STREAM.MSG.GET.") && len(words) == 4:
		answer = b.get(words[3], m)
	case strings.HasPrefix(m.subject, "$JS.API.CONSUMER.MSG.NEXT.") && len(words) == 5:
		b.pull(words[3], words[4], m)
		return
	case words[0] == "CONSUMER" && len(words) >= 4:
		answer = b.consumerRequest(words[1], words[2], words[3], m)
	}
	if answer == nil {
		b.options.Unknown("request " + m.subject)
		return
	}
	data, err := json.Marshal(answer)
	if err != nil {
		b.options.Unknown("answer: " + err.Error())
	}
	b.answer(m.reply, fault, nil, data)
}

func (b *Broker) streamRequest(do, name string, m wireMsg) map[string]any {
	s := b.streams[name]
	switch {
	case do == "CREATE" && s == nil:
		var config jetstream.StreamConfig
		if err := json.Unmarshal(m.data, &config); err != nil {
			b.options.Unknown("a stream: " + err.Error())
			return nil
		}
		b.streams[name] = newStream(b, config)
		return b.streams[name].info()
	case do != "INFO" && do != "UPDATE":
		return nil
	case s == nil:
		return map[string]any{"error": errNoStream}
	case do == "UPDATE":
		if err := json.Unmarshal(m.data, &s.config); err != nil {
			b.options.Unknown("a stream: " + err.Error())
		}
		return s.info()
	default:
		return s.info()
	}
}

// query is the body of a request for a message.
type query struct {
	Sequence uint64 `json:"seq"`
	Last     string `json:"last_by_subj"`
	Next     string `json:"next_by_subj"`
	Batch    int    `json:"batch"`
}

func (b *Broker) find(s *stream, q query) *message {
	switch {
	case q.Batch > 0:
		b.options.Unknown("a read of several messages")
		return nil
	case q.Last != "":
		return s.lastOn(q.Last)
	case q.Next != "":
		return s.next(q.Sequence, []string{q.Next})
	default:
		return s.at(q.Sequence)
	}
}

// direct answers a read that any server with the stream may answer, not only the leader. Here there is one
// server.
func (b *Broker) direct(name, subject string, m wireMsg, fault Fault) {
	s := b.streams[name]
	if s == nil || !s.config.AllowDirect {
		b.status(m.reply, 503, "", nil)
		return
	}
	q := query{Last: subject}
	if subject == "" {
		if err := json.Unmarshal(m.data, &q); err != nil {
			b.options.Unknown("a read: " + err.Error())
		}
	}
	found := b.find(s, q)
	if found == nil {
		if !fault.Unanswered {
			b.after(fault.AnswerLate, func() { b.status(m.reply, 404, "Message Not Found", nil) })
		}
		return
	}
	h := nats.Header{}
	maps.Copy(h, found.header)
	h["Nats-Stream"], h["Nats-Subject"] = []string{name}, []string{found.subject}
	h["Nats-Sequence"] = []string{strconv.FormatUint(found.sequence, 10)}
	h["Nats-Time-Stamp"] = []string{found.at.UTC().Format(time.RFC3339Nano)}
	b.answer(m.reply, fault, h, found.data)
}

// get answers a read that only the leader answers.
func (b *Broker) get(name string, m wireMsg) map[string]any {
	s := b.streams[name]
	var q query
	if err := json.Unmarshal(m.data, &q); err != nil {
		return nil
	}
	if s == nil {
		return map[string]any{"error": errNoStream}
	}
	found := b.find(s, q)
	if found == nil {
		return map[string]any{"error": errNoMessage}
	}
	stored := map[string]any{"subject": found.subject, "seq": found.sequence, "data": found.data,
		"time": found.at.UTC()}
	if found.header != nil {
		stored["hdrs"] = encodeHeader(found.header)
	}
	return map[string]any{"message": stored}
}

func (b *Broker) consumerRequest(do, stream, name string, m wireMsg) map[string]any {
	s := b.streams[stream]
	if s == nil {
		return map[string]any{"error": errNoStream}
	}
	c := s.consumers[name]
	switch {
	case do == "CREATE":
		var r struct {
			Config jetstream.ConsumerConfig `json:"config"`
		}
		if err := json.Unmarshal(m.data, &r); err != nil {
			b.options.Unknown("a consumer: " + err.Error())
			return nil
		}
		if c == nil {
			c = s.addConsumer(name, r.Config)
		}
		return c.info()
	case c == nil:
		return map[string]any{"error": errNoConsumer}
	case do == "INFO":
		return c.info()
	case do == "DELETE":
		for _, p := range c.waiting {
			b.status(p.reply, 409, "Consumer Deleted", nil)
		}
		c.remove()
		delete(s.consumers, name)
		return map[string]any{"success": true}
	default:
		return nil
	}
}
