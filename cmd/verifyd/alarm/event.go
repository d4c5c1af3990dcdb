package alarm

import "time"

// Type names a kind of cause. The names are part of the interface to operators and never change.
type Type string

// The types.
const (
	StoreHigh          Type = "store.high"
	StoreDegraded      Type = "store.degraded"
	QuotaNear          Type = "account.quota_near"
	ReceiverFailing    Type = "receiver.failing"
	DeliveriesUnknown  Type = "deliveries.unknown"
	DeliveriesStray    Type = "deliveries.stray"
	BacklogOld         Type = "backlog.old"
	NetworkUnavailable Type = "network.unavailable"
	FactsUnreadable    Type = "facts.unreadable"
	CopyBehind         Type = "copy.behind"
	ClockOff           Type = "clock.off"
	StoreDamaged       Type = "store.damaged"
)

// Status reports whether a cause persists.
type Status string

// The states of a cause.
const (
	Raised   Status = "raised"
	Resolved Status = "resolved"
)

// Condition is a cause as one process sees it now.
type Condition struct {
	Type   Type
	About  string         // what it is about, such as a host or an id; empty: the whole service
	Detail string         // one sentence for people, without secrets or user data
	Data   map[string]any // the figures in it
	// Until is the instant until which it holds without being reported; zero: it holds while it is reported.
	Until time.Time
	// Over is set when the condition is known not to hold, which ends it whatever Until is.
	Over bool
}

// Event is the notification to operators, as JSON.
type Event struct {
	ID     string         `json:"id"` // the same for every copy
	Type   Type           `json:"type"`
	Status Status         `json:"status"`
	About  string         `json:"about,omitempty"`
	At     time.Time      `json:"at"`
	Since  time.Time      `json:"since"` // when it was raised
	Detail string         `json:"detail"`
	Data   map[string]any `json:"data,omitempty"`
}
