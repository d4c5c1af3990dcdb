package simtest

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options configure a Broker.
type Options struct {
	// Unknown is called with each request that the broker does not know, and therefore does not answer.
	Unknown func(what string)
	// Fault decides the fault of a message; if it is nil, there are no faults. It must not block.
	Fault func(Event) Fault
}

// Kind is the purpose of a message.
type Kind string

// The kinds of messages.
const (
	KindPublish Kind = "publish" // to a stream
	KindAck     Kind = "ack"     // about a delivery: an acknowledgement of any kind
	KindRead    Kind = "read"    // of a message, by its subject or sequence
	KindAPI     Kind = "api"     // any other request to JetStream
	KindDeliver Kind = "deliver" // from a consumer
)

// Event is a message in transit, for which a Fault is decided.
type Event struct {
	Kind    Kind
	Subject string // of the message that it is about; of an API request, its own
	Header  nats.Header
	Data    []byte
	Client  string // the endpoint that sent it, or whose request it answers
}

// Fault is what happens to a message. With the zero value it arrives, and so does its answer.
type Fault struct {
	Lost         bool          // it never arrives; of a delivery: on its way to the client
	Late         time.Duration // it arrives that much later, after others
	Unanswered   bool          // it arrives, and its answer is lost
	AnswerLate   time.Duration // its answer arrives that much later
	NoResponders bool          // no leader: the sender gets "no responders", and nothing is done
	Forgotten    bool          // of a publish: it is stored and answered, and the store loses it
	Again        time.Duration // of a delivery: it is redelivered that much later, as if no client held it
}

// Broker is one store of streams, with all its servers.
type Broker struct {
	options Options

	mu         sync.Mutex
	streams    map[string]*stream
	clients    []*client            // in the order in which they connected, so that a seed repeats
	leaderless map[string]time.Time // by stream: the end of the time without a leader
	down       time.Time            // the end of the time in which connections are refused
	numbered   int                  // connections so far
}

// Endpoint is one process's access to the broker. It is a natsconf.Server.
type Endpoint struct {
	broker *Broker
	name   string
	never  chan struct{}
	gone   bool // under the broker's lock
}

// stream is one stream.
type stream struct {
	broker    *Broker
	config    jetstream.StreamConfig
	created   time.Time
	msgs      []*message // by sequence
	last      uint64
	consumers map[string]*consumer
	added     int             // consumers created so far
	ids       map[string]seen // by message id
	staged    map[string][]*message
	schedules map[string]*time.Timer // by subject
}

type seen struct {
	sequence uint64
	until    time.Time
}

// message is a message that is stored, or staged in a batch.
type message struct {
	subject  string
	sequence uint64
	header   nats.Header
	data     []byte
	at       time.Time
	until    time.Time // zero: forever
}

// consumer delivers the messages of a stream on request.
type consumer struct {
	of      *stream
	name    string
	number  int // of the stream's consumers, in the order of their creation
	config  jetstream.ConsumerConfig
	created time.Time
	filters []string

	from      uint64   // the first sequence that it has not examined
	only      []uint64 // what it delivers first: the last message of each subject
	delivered uint64   // the last consumer sequence
	floor     uint64   // the stream sequence up to which all messages are acknowledged
	pending   map[uint64]*pending
	given     map[uint64]int // how often each message was delivered
	again     []uint64       // messages to redeliver
	waiting   []*pull
	unused    *time.Timer // nil: it is not removed when unused
}

// pending is a message that was delivered, and is not acknowledged.
type pending struct {
	subject string
	number  uint64 // the consumer sequence
	timer   *time.Timer
}

// client is one connection.
type client struct {
	broker *Broker
	of     *Endpoint
	conn   *Conn
	subs   []subscription
}

// subscription is a subscription of a client, with the client's own name for it.
type subscription struct{ name, subject string }

// wireMsg is a message as a client sends it.
type wireMsg struct {
	subject, reply string
	header         nats.Header
	data           []byte
}
