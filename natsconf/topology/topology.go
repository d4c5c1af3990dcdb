package topology

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The names of the assets. Packages use these constants; none spells out a stream's name.
const (
	StreamCompletions = "COMPLETIONS"
	StreamEvents      = "EVENTS"
	StreamRetries     = "RETRIES"
	StreamUsage       = "USAGE"
	StreamAudit       = "AUDIT"
	StreamSessionKeys = "SESSION_KEYS"
	StreamNotices     = "NOTICES"
	BucketSessions    = "sessions"
	BucketAccounts    = "accounts"
	BucketKeys        = "keys"
	BucketLogins      = "logins"
	BucketKeyUses     = "key-uses"
	BucketIdempotency = "idempotency"
	BucketIdentities  = "identities"
	BucketAlarms      = "alarms"
	BucketOperations  = "operations"
	BucketStore       = "store"

	// ConsumerDispatcher and ConsumerRetries are the durable consumers that all dispatcher processes share:
	// of completions, and of those whose next try has come due.
	ConsumerDispatcher = "dispatcher"
	ConsumerRetries    = "retries"
	// ConsumerNotices and ConsumerAudit are shared by them too: of notices that are still to be posted, and
	// of the audit log, from which accounts are notified.
	ConsumerNotices = "notices"
	ConsumerAudit   = "audit-notices"
)

// Subjects that belong to no stream.
const (
	// SubjectSpent is where edges tell each other what they allowed of a rate limit. It belongs to no stream:
	// a lost message costs the count of a few sessions.
	SubjectSpent = "verifyd.limit.spent"
	// SubjectAlarms is the prefix below which processes publish events for operators; the type follows.
	// BucketAlarms keeps what must be kept of them.
	SubjectAlarms = "verifyd.alarm"
	// SubjectFleet is where processes are asked what they know (package natsconf/fleet). It belongs to no
	// stream, either.
	SubjectFleet = "verifyd.roster"
)

// Times that the topology fixes.
const (
	// DefaultKeepResults is how long records, facts and timelines are kept, and so how long results can be
	// read. The instant in a session's record decides its expiry.
	DefaultKeepResults = 72 * time.Hour
	// IdempotencyTTL is how long an idempotency key is valid for its session.
	IdempotencyTTL = 10 * time.Minute
	// usageTTL covers a year of months and the current one, which is what people compare.
	usageTTL = 400 * 24 * time.Hour
	// AuditTTL is how long the audit log is kept: a year and the month in which somebody looks back at it.
	AuditTTL = 400 * 24 * time.Hour
	// NoticeTTL is how long an account's members can look its notices up.
	NoticeTTL = 30 * 24 * time.Hour
	// LoginTTL is how long a dashboard login, or a login link, lives at most.
	LoginTTL = 12 * time.Hour
	// AckWait is how long after the last sign of progress a completion is delivered to a dispatcher again.
	// Deliveries outlast it by sending progress; after a crash it bounds the pause.
	AckWait = 30 * time.Second
	// noticeAckWait is AckWait for notices, which wait their turn for longer and send no progress.
	noticeAckWait = 2 * time.Minute
	// dedupWindow is how long a message id protects a publisher's own retry.
	dedupWindow = 2 * time.Minute
	// maxAckPending is unlimited: a message that waits for its next try counts as pending, so that any bound
	// would let one dead receiver stop the deliveries to all others. The dispatchers bound how many they
	// hold.
	maxAckPending = -1
)

// BucketStream returns the name of the stream under a key-value bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// BucketSubject returns the subject of a key in a key-value bucket.
func BucketSubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// Options are the operator's choices that shape the topology.
type Options struct {
	Replicas    int           // copies of every stream: 1 embedded, 3 on a cluster
	Embedded    bool          // the store is in this process
	KeepResults time.Duration // how long results can be read; DefaultKeepResults when zero
}

// Topology is everything that JetStream holds for verifyd.
type Topology struct {
	Streams   []jetstream.StreamConfig
	Consumers []Consumer
}

// Consumer is a durable consumer and the stream it reads.
type Consumer struct {
	Stream string
	Config jetstream.ConsumerConfig
}

// New returns the table for the operator's choices.
func New(o Options) Topology {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.KeepResults == 0 {
		o.KeepResults = DefaultKeepResults
	}
	return Topology{
		Streams: []jetstream.StreamConfig{
			completions(o), events(o), retries(o), usage(o), audit(o),
			records(o), sessionKeys(o), notices(o),
			bucket(o, BucketAccounts, "integrators and their sealed signing secrets", 0),
			bucket(o, BucketKeys, "API keys as digests; revoked by putting a revoked record", 0),
			bucket(o, BucketLogins, "dashboard logins and login links, as digests", LoginTTL),
			keyUses(o),
			// the record of an event that is over has a life of its own
			living(bucket(o, BucketAlarms, "what operators are told of: causes, and who reports them", 0)),
			bucket(o, BucketIdempotency, "idempotency keys and the sealed tokens of their sessions",
				IdempotencyTTL),
			// if a network's rules let an identity stand for one user only; the rules state for how long
			living(bucket(o, BucketIdentities, "which user an identity stands for, as keyed hashes", 0)),
			// what a login link grants has a life of its own
			living(bucket(o, BucketOperations,
				"what operators decided: who else is one, which receiver hosts are paused", 0)),
			// its master keys, too, once the key was changed (package storestate); erased sessions are listed
			// for as long as their facts are kept
			living(bucket(o, BucketStore,
				"whether the store is in service, and which sessions are erased", 0)),
		},
		Consumers: append(DispatcherConsumers(), NoticeConsumers()...),
	}
}

// DispatcherConsumers are the consumers that all dispatcher processes share.
func DispatcherConsumers() []Consumer {
	return []Consumer{
		dispatcherConsumer(StreamCompletions, ConsumerDispatcher,
			"completions still to be delivered, and what is to be sent again; shared by all dispatchers",
			"completion.*", "resend.*.*"),
		dispatcherConsumer(StreamRetries, ConsumerRetries,
			"deliveries whose next try has come due; shared by all dispatchers", "retry.*"),
	}
}

// NoticeConsumers are the consumers of notices, which all dispatcher processes share, too. Records that were
// in the audit log before the second was made, by an older build or in the store that this one was copied
// from, are not news.
func NoticeConsumers() []Consumer {
	audit := dispatcherConsumer(StreamAudit, ConsumerAudit,
		"changes that accounts are still to be told of; shared by all dispatchers", "audit.*.*")
	audit.Config.DeliverPolicy = jetstream.DeliverNewPolicy
	posts := dispatcherConsumer(StreamNotices, ConsumerNotices,
		"notices still to be posted; shared by all dispatchers", "notice.*.*")
	posts.Config.AckWait = noticeAckWait
	return []Consumer{posts, audit}
}

func dispatcherConsumer(stream, name, description string, subjects ...string) Consumer {
	return Consumer{Stream: stream, Config: jetstream.ConsumerConfig{
		Durable:        name,
		Description:    description,
		FilterSubjects: subjects,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        AckWait,
		MaxDeliver:     -1, // the dispatcher has its own budget; the broker's would drop an outcome silently
		MaxAckPending:  maxAckPending,
		ReplayPolicy:   jetstream.ReplayInstantPolicy,
	}}
}

// base holds the settings that all streams share.
func base(o Options, name, description string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              name,
		Description:       description,
		Subjects:          subjects,
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Replicas:          o.Replicas,
		Discard:           jetstream.DiscardOld,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		Duplicates:        dedupWindow,
		// If there is one copy, its leader answers them; if there are more, any of them does.
		AllowDirect: o.Embedded,
	}
}

func completions(o Options) jetstream.StreamConfig {
	c := base(o, StreamCompletions, "the facts of sessions: outcome, claims and results, each written once",
		"completion.*", "claim.*.*", "result.*.*", "resend.*.*")
	// One message per subject, a second is refused: this makes an outcome and a claim unique. Deleting or
	// purging one would open the fence again.
	c.MaxMsgsPerSubject = 1
	c.Discard = jetstream.DiscardNew
	c.DiscardNewPerSubject = true
	c.DenyDelete = true
	c.DenyPurge = true
	c.AllowAtomicPublish = true
	// No message TTLs: whoever may write a fact could give it a life of a second, and another one could take
	// its place.
	c.MaxAge = o.KeepResults
	return c
}

func events(o Options) jetstream.StreamConfig {
	c := base(o, StreamEvents, "the timeline of sessions; may lose its last moments in a crash",
		"session.*.*")
	c.AllowMsgTTL = true // a message that is brought from another store keeps the end of its life
	c.MaxAge = o.KeepResults
	if o.Embedded {
		c.PersistMode = jetstream.AsyncPersistMode // it can never be changed, and excludes more replicas
	}
	return c
}

// retries holds the deliveries to be tried later, as message schedules: schedule.<sid> waits in the server,
// which puts it on retry.<sid> when its time has come. Both are hints, and the newest of each replaces the
// one before: the facts decide.
func retries(o Options) jetstream.StreamConfig {
	c := base(o, StreamRetries, "deliveries that wait for their next try, as message schedules", "schedule.*",
		"retry.*")
	c.MaxMsgsPerSubject = 1
	c.AllowMsgSchedules = true
	c.AllowRollup = true // schedules need it
	c.MaxAge = o.KeepResults
	return c
}

// records holds the record of each session, for as long as its results: it distinguishes an expired session
// from one that never was, and an account's sessions are listed from it. A message may ask for a shorter
// life, as that of a redeemed sign-in attempt does.
func records(o Options) jetstream.StreamConfig {
	return living(bucket(o, BucketSessions, "records of sessions and redeemed sign-in attempts",
		o.KeepResults))
}

// pageKept is how much longer the keys are kept than the results that they seal: sessions take keys from a
// page for up to an hour, and a session's last facts are some ten minutes younger than its key.
const pageKept = 2 * time.Hour

// sessionKeys holds the keys under which each session's personal part is sealed, many on a page. To destroy a
// key, its page is rewritten without it, and the message before is overwritten in the servers' files. So only
// this stream allows messages to be deleted, and keeps more than one on a subject: otherwise the one before
// would leave without being overwritten.
func sessionKeys(o Options) jetstream.StreamConfig {
	c := base(o, StreamSessionKeys,
		"keys of sessions' personal parts, sealed; a key that is destroyed is overwritten", "session-keys.*")
	c.Discard = jetstream.DiscardNew
	c.AllowAtomicPublish = true
	c.AllowMsgTTL = true // see events
	c.MaxAge = o.KeepResults + pageKept
	return c
}

// notices holds accounts' notices: notice.<account>.<id>, written once for each cause; how far each of their
// members has read; and what is open, such as a receiver that fails.
func notices(o Options) jetstream.StreamConfig {
	c := base(o, StreamNotices, "what accounts are told of, how far members have read, and what is open",
		"notice.*.*", "notice-read.*.*", "notice-open.>")
	c.MaxMsgsPerSubject = 1
	c.AllowMsgTTL = true // see events
	c.MaxAge = NoticeTTL
	return c
}

func usage(o Options) jetstream.StreamConfig {
	c := base(o, StreamUsage, "sessions started, per account and UTC month, and statistics per UTC day",
		"usage.*.*", "stat.*.*.*")
	c.MaxMsgsPerSubject = 1 // each message carries the total
	c.AllowMsgCounter = true
	c.MaxAge = usageTTL
	return c
}

// audit holds who changed what in an account: audit.<account>.<n>, numbered from 1 without a gap. As with the
// facts of sessions, a second message on a subject is refused, so that nobody can overwrite a record, or
// remove one.
func audit(o Options) jetstream.StreamConfig {
	c := base(o, StreamAudit,
		"who changed what in an account, and when: each record written once, none deleted", "audit.*.*")
	c.MaxMsgsPerSubject = 1
	c.Discard = jetstream.DiscardNew
	c.DiscardNewPerSubject = true
	c.DenyDelete = true
	c.DenyPurge = true
	c.AllowMsgTTL = true // see events
	c.MaxAge = AuditTTL
	return c
}

// keyUses may lose its last moments in a crash: a key that is still used is recorded again within the hour.
func keyUses(o Options) jetstream.StreamConfig {
	c := bucket(o, BucketKeyUses, "when each API key was last used, to the hour", AuditTTL)
	c.AllowAtomicPublish = false // excludes asynchronous persistence
	if o.Embedded {
		c.PersistMode = jetstream.AsyncPersistMode
	}
	return c
}

// bucket declares the stream under a key-value bucket as nats.go would, except for direct reads and roll-ups,
// which nats.go always enables: one message with the header Nats-Rollup would empty the bucket.
func bucket(o Options, name, description string, ttl time.Duration) jetstream.StreamConfig {
	c := base(o, BucketStream(name), description, BucketSubject(name, ">"))
	c.MaxMsgsPerSubject = 1
	c.Discard = jetstream.DiscardNew
	c.DenyDelete = true
	c.AllowAtomicPublish = true
	c.MaxAge = ttl
	return c
}

// living lets messages have lives of their own, which end before the stream's age.
func living(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.AllowMsgTTL = true
	return c
}

// Unsynced are the streams that no promise depends on: they are written to disk a moment after their
// messages are acknowledged.
var Unsynced = []string{StreamEvents, BucketStream(BucketKeyUses)}

// StreamNames returns the names of all streams, in the topology's order.
var StreamNames = sync.OnceValue(func() (names []string) {
	for _, s := range New(Options{}).Streams {
		names = append(names, s.Name)
	}
	return names
})
