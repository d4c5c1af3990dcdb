package chromiumtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	keepMessages = 60      // the last of the protocol, of which a poll's are one
	keepParams   = 160     // bytes of a message's parameters
	keepOutput   = 8 << 10 // the last bytes of what the browser printed
	pollLength   = 8       // messages of a poll: one like any of so many before is the same once more
)

// record keeps the last that was said between a test and its browser, and what the browser printed, for a
// test that fails.
type record struct {
	mu      sync.Mutex
	said    []*message
	waiting map[int64]*message // commands that are not answered, by id
	printed []byte
}

type message struct {
	text       string
	first      time.Time
	last       time.Time
	times      int
	id         int64 // of the last of them, when it is a command
	unanswered int
	failed     string // what the last answer said was wrong
}

// failure is a command's.
type failure struct {
	Message string `json:"message"`
}

type recordKey struct{}

func newRecord() *record { return &record{waiting: make(map[int64]*message)} }

// Write takes what the browser prints.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printed = append(r.printed, p...)
	r.printed = r.printed[max(0, len(r.printed)-keepOutput):]
	return len(p), nil
}

// changing is what differs between the rounds of a poll.
var changing = regexp.MustCompile(`"(objectId|timestamp|requestId|loaderId|frameId)":("[^"]*"|[0-9.]+),?`)

// debugf is chromedp's, which calls it with the direction and the message.
func (r *record) debugf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	direction, raw, _ := strings.Cut(text, " ")
	var m struct {
		ID     int64           `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Error  *failure        `json:"error"`
	}
	if json.Unmarshal([]byte(raw), &m) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Method == "" {
		r.answer(m.ID, m.Error)
		return
	}
	params := changing.ReplaceAllString(string(m.Params), "")
	r.say(fmt.Sprintf("%s %s %s", direction, m.Method, params[:min(len(params), keepParams)]), m.ID)
}

func (r *record) answer(id int64, failed *failure) {
	m := r.waiting[id]
	if m == nil {
		return
	}
	delete(r.waiting, id)
	m.unanswered--
	m.failed = ""
	if failed != nil {
		m.failed = failed.Message
	}
}

// say keeps a message; id is a command's.
func (r *record) say(text string, id int64) {
	now := time.Now()
	recent := r.said[max(0, len(r.said)-pollLength):]
	i := slices.IndexFunc(recent, func(m *message) bool { return m.text == text })
	var m *message
	if i >= 0 {
		m = recent[i]
	} else {
		m = &message{text: text, first: now}
		r.said = append(r.said, m)
		r.said = r.said[max(0, len(r.said)-keepMessages):]
	}
	m.times++
	m.last = now
	if id != 0 {
		m.id = id
		m.unanswered++
		r.waiting[id] = m
	}
}

// String returns all of it, for people.
func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	const clock = "15:04:05.000"
	var b strings.Builder
	b.WriteString("The last of the protocol:\n")
	for _, m := range r.said {
		fmt.Fprintf(&b, "%s %s", m.first.Format(clock), m.text)
		if m.id != 0 {
			fmt.Fprintf(&b, " #%d", m.id)
		}
		if m.times > 1 {
			fmt.Fprintf(&b, " (%d times until %s)", m.times, m.last.Format(clock))
		}
		if m.unanswered > 0 {
			fmt.Fprintf(&b, " (unanswered: %d)", m.unanswered)
		}
		if m.failed != "" {
			fmt.Fprintf(&b, " (failed: %s)", m.failed)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "The browser printed:\n%s", r.printed)
	return b.String()
}
