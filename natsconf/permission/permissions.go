// Package permission is who may do what with the topology: the roles of the processes, and the subjects that
// each may publish and listen to.
package permission

import (
	"slices"

	"verifyd/natsconf/topology"
)

// Role is what a process or a person does with the store. Each has a credential of its own if the server
// distinguishes them.
type Role string

// The roles. RoleOperator is everything within the account: it makes the topology and runs the commands that
// change it, and a process that runs edge and dispatcher in one takes it too. RoleMonitor sees figures and
// settings, hears operator events, and reads nothing stored.
const (
	RoleEdge       Role = "edge"
	RoleDispatcher Role = "dispatcher"
	RoleOperator   Role = "operator"
	RoleMonitor    Role = "monitor"
)

// Roles lists all roles.
func Roles() []Role { return []Role{RoleEdge, RoleDispatcher, RoleOperator, RoleMonitor} }

// Subjects that belong to no stream.
const (
	// SubjectUserInfo is where a user learns what the server lets it do.
	SubjectUserInfo = "$SYS.REQ.USER.INFO"
	// inboxes is where answers come, below a name that is the user's own: a user that could listen to all
	// inboxes would read every answer.
	inboxes = "_INBOX"
	// answers is the subjects that a process answers on. The server could allow that for each question
	// instead (allow_responses), but then at whatever subject the question names: a user that may ask and be
	// asked would allow itself everything. An inbox's name cannot be guessed.
	answers = inboxes + ".>"
)

// Set is what a role may do. Unlimited ones leave the lists empty.
type Set struct {
	Unlimited       bool
	Publish, Listen Rule
}

// Rule lists subjects, as a server has them in its configuration, and reports them: without any that are
// allowed, all are. A denied subject is denied although a wildcard allows it.
type Rule struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// reading is how a role reads a stream.
type reading int

const (
	unread reading = iota
	single         // messages one by one, from the leader
	many           // also through consumers of its own that end by themselves
)

// access is what a role does with one stream.
type access struct {
	stream string
	writes []string
	reads  reading
}

// entries is a role's access to all entries of a bucket.
func entries(bucket string, reads reading) access {
	return access{topology.BucketStream(bucket), []string{topology.BucketSubject(bucket, ">")}, reads}
}

// accesses is the table of each role's permissions on each stream. The server refuses everything that is not
// in it.
//
//	asset               edge                         dispatcher
//	KV sessions         makes and reads              –
//	SESSION_KEYS        makes and reads              reads
//	COMPLETIONS         completion, resend; reads    claim, result; reads
//	EVENTS              makes and reads              not_sent
//	RETRIES             reads                        schedule; reads; the server puts on retry what is due
//	USAGE               counts and reads             counts statistics
//	KV accounts, keys   changes and reads            reads
//	KV alarms           makes and reads              makes and reads
//	NOTICES             makes and reads              makes and reads
//	AUDIT               makes and reads              its consumer
//	KV operations       pauses and reads             reads
//	KV store            reads                        reads
//	the others          makes and reads              –
//
// So an edge cannot claim an attempt or store its result, and a dispatcher can neither make a session nor
// decide how one ended.
var accesses = map[Role][]access{
	RoleEdge: {
		entries(topology.BucketSessions, many),
		{topology.StreamSessionKeys, []string{"session-keys.*"}, single},
		{topology.StreamCompletions, []string{"completion.*", "resend.*.*"}, many},
		{topology.StreamEvents, []string{"session.*.*"}, single},
		{topology.StreamRetries, nil, many}, // operators' pages show the backlog
		{topology.StreamUsage, []string{"usage.*.*", "stat.*.*.*"}, many},
		{topology.StreamAudit, []string{"audit.*.*"}, many},
		entries(topology.BucketAccounts, many),
		entries(topology.BucketKeys, many),
		entries(topology.BucketLogins, single),
		entries(topology.BucketKeyUses, many),
		entries(topology.BucketIdempotency, single),
		entries(topology.BucketIdentities, single),
		entries(topology.BucketAlarms, many),
		// read marks, and what is known here alone, such as the use of quotas
		{topology.StreamNotices, []string{"notice.*.*", "notice-read.*.*"}, many},
		// operators and login links are made by an operator's credential
		{topology.BucketStream(topology.BucketOperations),
			[]string{topology.BucketSubject(topology.BucketOperations, "pause.*")}, many},
		{topology.BucketStream(topology.BucketStore), nil, many},
	},
	RoleDispatcher: {
		{topology.StreamSessionKeys, nil, single},
		{topology.StreamCompletions, []string{"claim.*.*", "result.*.*"}, many},
		{topology.StreamEvents, []string{"session.not_sent.*"}, unread},
		{topology.StreamRetries, []string{"schedule.*"}, many},
		{topology.StreamUsage, []string{"stat.*.*.*"}, unread},
		{topology.BucketStream(topology.BucketAccounts), nil, many},
		{topology.BucketStream(topology.BucketKeys), nil, many},
		entries(topology.BucketAlarms, many),
		{topology.StreamNotices, []string{"notice.*.*", "notice-open.>"}, many},
		{topology.BucketStream(topology.BucketOperations), nil, many},
		{topology.BucketStream(topology.BucketStore), nil, single},
	},
}

// Of returns what a role may do as the user of that name, which is the public part of its nkey, or its user
// name. The others are users that the role has had, or has as well: a process that began as one of them goes
// on as this one.
func Of(role Role, user string, others ...string) Set {
	if role == RoleOperator {
		return Set{Unlimited: true}
	}
	p := Set{
		Publish: Rule{Allow: []string{
			SubjectUserInfo, "$JS.API.INFO",
			"$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.INFO.*.*", // settings and figures
		}},
	}
	for _, name := range append([]string{user}, others...) {
		p.Listen.Allow = append(p.Listen.Allow, InboxOf(name)+".>")
	}
	for _, a := range accesses[role] {
		p.Publish.Allow = append(p.Publish.Allow, a.subjects()...)
	}
	switch role {
	case RoleEdge:
		p.edge()
	case RoleDispatcher:
		p.dispatcher()
	case RoleMonitor:
		p.Publish.Allow = append(p.Publish.Allow, "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
			"$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.LIST.*")
		p.Listen.Allow = append(p.Listen.Allow, topology.SubjectAlarms+".>")
	case RoleOperator: // answered above
	}
	return p
}

// edge adds the messages between edges and listeners' callbacks (package natsconf/devtunnel), and keeps edges
// off the dispatchers' consumers, except that of the audit log.
func (p *Set) edge() {
	p.Publish.Allow = append(p.Publish.Allow, topology.SubjectSpent, topology.SubjectFleet,
		topology.SubjectAlarms+".>", "listened.*.*",
		answers)
	p.Listen.Allow = append(p.Listen.Allow, topology.SubjectSpent, topology.SubjectFleet, "listen.*",
		"listen.*.*")
	for _, c := range slices.Concat(topology.DispatcherConsumers(), topology.NoticeConsumers()) {
		// Edges of 0.9.0 read AUDIT by consumers, and do not start where the name of one is denied to them.
		// Later edges do (natsconf.Grants.Lacking), and a table under which no older one runs can deny it.
		if c.Config.Durable != topology.ConsumerAudit {
			p.Publish.Deny = append(p.Publish.Deny, consumerSubjects(c)...)
		}
	}
}

func (p *Set) dispatcher() {
	p.Publish.Allow = append(p.Publish.Allow, topology.SubjectAlarms+".>", "listen.*", "listen.*.*", answers)
	p.Listen.Allow = append(p.Listen.Allow, topology.SubjectFleet, "listened.*.*")
	for _, c := range slices.Concat(topology.DispatcherConsumers(), topology.NoticeConsumers()) {
		p.Publish.Allow = append(p.Publish.Allow, consumerSubjects(c)...)
		p.Publish.Allow = append(p.Publish.Allow, "$JS.ACK."+c.Stream+"."+c.Config.Durable+".>")
	}
	slices.Sort(p.Publish.Allow)
	p.Publish.Allow = slices.Compact(p.Publish.Allow)
}

// subjects are the subjects that the access needs.
func (a access) subjects() []string {
	s := slices.Clone(a.writes)
	if a.reads >= single {
		s = append(s, "$JS.API.STREAM.MSG.GET."+a.stream)
	}
	if a.reads == many {
		s = append(s,
			"$JS.API.CONSUMER.CREATE."+a.stream+".>", "$JS.API.CONSUMER.MSG.NEXT."+a.stream+".*",
			"$JS.API.CONSUMER.DELETE."+a.stream+".*",
			"$JS.FC."+a.stream+".>", // flow control of watches
		)
	}
	return s
}

// consumerSubjects are the subjects needed to make, change, read and delete a durable consumer.
func consumerSubjects(c topology.Consumer) []string {
	name := c.Stream + "." + c.Config.Durable
	return []string{
		"$JS.API.CONSUMER.CREATE." + name, "$JS.API.CONSUMER.CREATE." + name + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + name, "$JS.API.CONSUMER.DELETE." + name,
	}
}

// WritesOf lists what a role stores.
func WritesOf(role Role) (subjects []string) {
	for _, a := range accesses[role] {
		subjects = append(subjects, a.writes...)
	}
	return subjects
}

// InboxOf returns the subject of answers to a user.
func InboxOf(user string) string { return inboxes + "." + user }
