package simtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// serve reads what the client sends until the connection ends.
func (c *client) serve() {
	defer func() {
		c.broker.mu.Lock()
		c.broker.clients = slices.DeleteFunc(c.broker.clients, func(other *client) bool { return other == c })
		c.broker.mu.Unlock()
		_ = c.conn.Close()
	}()
	in := bufio.NewReader(c.conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch op := strings.ToUpper(words[0]); op {
		case "PUB", "HPUB":
			m, err := readMsg(in, op == "HPUB", words[1:])
			if err != nil {
				return
			}
			c.broker.receive(c, m)
		default:
			c.command(op, words[1:])
		}
	}
}

// readMsg reads the message of a PUB or HPUB with these arguments: the subject, the reply if there is one,
// and the sizes.
func readMsg(in io.Reader, headed bool, words []string) (m wireMsg, err error) {
	head, sizes := 0, 1
	if headed {
		sizes = 2
	}
	if len(words) < 1+sizes {
		return m, errors.New("too few words")
	}
	m.subject = words[0]
	if len(words) > 1+sizes {
		m.reply = words[1]
	}
	total, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return m, err
	}
	body := make([]byte, total+2)
	if _, err := io.ReadFull(in, body); err != nil {
		return m, err
	}
	if headed {
		if head, err = strconv.Atoi(words[len(words)-2]); err != nil || head > total {
			return m, errors.New("a header longer than its message")
		}
		if m.header, err = nats.DecodeHeadersMsg(body[:head]); err != nil {
			return m, err
		}
	}
	m.data = body[head:total]
	return m, nil
}

// command handles a command without a message.
func (c *client) command(op string, words []string) {
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	switch op {
	case "PING":
		_, _ = io.WriteString(c.conn, "PONG\r\n")
	case "SUB":
		c.subs = append(c.subs, subscription{words[len(words)-1], words[0]}) // queue groups are not used
	case "UNSUB":
		if len(words) == 1 {
			c.subs = slices.DeleteFunc(c.subs, func(s subscription) bool { return s.name == words[0] })
		} // with a count, the client itself drops the subscription
	case "CONNECT", "PONG":
	default:
		b.options.Unknown("command " + op)
	}
}

// interest reports whether a subject has a subscriber.
func (b *Broker) interest(subject string) bool {
	for _, c := range b.clients {
		for _, s := range c.subs {
			if matches(subject, s.subject) {
				return true
			}
		}
	}
	return false
}

// send passes a message to its subscribers, and reports whether there are any.
func (b *Broker) send(subject, reply string, header nats.Header, data []byte) (delivered bool) {
	var head []byte
	if header != nil {
		head = encodeHeader(header)
	}
	return b.write(subject, reply, head, data)
}

// status sends a status message without data, with header fields.
func (b *Broker) status(reply string, code int, text string, fields nats.Header) {
	if reply == "" {
		return
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "NATS/1.0 %d", code)
	if text != "" {
		head.WriteString(" " + text)
	}
	head.WriteString("\r\n")
	for name, values := range fields {
		for _, v := range values {
			head.WriteString(name + ": " + v + "\r\n")
		}
	}
	head.WriteString("\r\n")
	b.write(reply, "", head.Bytes(), nil)
}

func (b *Broker) write(subject, reply string, head, data []byte) (delivered bool) {
	return b.writeAs(subject, subject, reply, head, data)
}

// writeAs writes a message to the subscribers of an inbox, under another subject.
func (b *Broker) writeAs(inbox, subject, reply string, head, data []byte) (delivered bool) {
	for _, c := range b.clients {
		for _, s := range c.subs {
			if !matches(inbox, s.subject) {
				continue
			}
			delivered = true
			line := append(make([]byte, 0, 128+len(head)+len(data)), "MSG "...)
			if head != nil {
				line = append(line[:0], "HMSG "...)
			}
			line = append(append(append(line, subject...), ' '), s.name...)
			if reply != "" {
				line = append(append(line, ' '), reply...)
			}
			if head != nil {
				line = strconv.AppendInt(append(line, ' '), int64(len(head)), 10)
			}
			line = strconv.AppendInt(append(line, ' '), int64(len(head)+len(data)), 10)
			line = append(append(append(line, "\r\n"...), head...), data...)
			_, _ = c.conn.Write(append(line, "\r\n"...))
		}
	}
	return delivered
}

func encodeHeader(h nats.Header) []byte {
	var out bytes.Buffer
	out.WriteString("NATS/1.0\r\n")
	for name, values := range h {
		for _, v := range values {
			out.WriteString(name + ": " + v + "\r\n")
		}
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

// matches reports whether a subject matches a pattern. The broker decides it by itself, and not by package
// natsconf, which is tested on it.
func matches(subject, pattern string) bool {
	for {
		p, patternRest, patternMore := strings.Cut(pattern, ".")
		s, subjectRest, subjectMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s, patternMore != subjectMore:
			return false
		case !patternMore:
			return true
		}
		pattern, subject = patternRest, subjectRest
	}
}

func matchesAny(subject string, patterns []string) bool {
	for _, p := range patterns {
		if matches(subject, p) {
			return true
		}
	}
	return false
}
