package natsconf

import "slices"

// Role is what a process or a person does with the store. Each has a credential of its own where the server
// tells them apart.
type Role string

// The roles. RoleOperator is everything within the account: it makes the topology, runs the commands that
// change it, and is also what a process takes that runs edge and dispatcher in one. RoleMonitor sees figures
// and settings, hears operator events, and reads nothing stored.
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
	// SubjectSpent is where edges tell each other what they allowed of a rate limit. It is no stream's: what
	// is lost was a few sessions.
	SubjectSpent = "verifyd.limit.spent"
	// SubjectAlarms is below which processes tell operators of events; the type follows. What is to be kept
	// of them is in BucketAlarms.
	SubjectAlarms = "verifyd.alarm"
	// SubjectFleet is where processes are asked what they know (package natsconf/fleet). It is no stream's,
	// either.
	SubjectFleet = "verifyd.roster"
	// subjectUserInfo is where a user learns what the server lets it do.
	subjectUserInfo = "$SYS.REQ.USER.INFO"
	// inboxes is where answers come, below a name that is the user's own: who could listen to all inboxes
	// would read every answer.
	inboxes = "_INBOX"
	// answers is where who is asked answers. The server could allow that for each question instead
	// (allow_responses), but then at whatever subject the question names: who may ask and be asked would
	// allow itself everything. An inbox's name cannot be guessed.
	answers = inboxes + ".>"
)

// Permissions are what a role may do. Unlimited ones leave the lists empty.
type Permissions struct {
	Unlimited       bool
	Publish, Listen Rule
}

// Rule lists subjects; what is denied is so although a wildcard allows it.
type Rule struct{ Allow, Deny []string }

// reading is how a role reads a stream.
type reading int

const (
	unread reading = iota
	single         // messages one by one, from the leader
	many           // besides, through consumers of its own that end by themselves
)

// access is what a role does with one stream.
type access struct {
	stream string
	writes []string
	reads  reading
}

// accesses is the table of who does what with which stream. What is not in it the server refuses.
//
//	asset               edge                         dispatcher
//	KV sessions         makes and reads              –
//	SESSION_KEYS        makes and reads              reads
//	COMPLETIONS         completion, resend; reads    claim, result; reads
//	EVENTS              makes and reads              not_sent
//	RETRIES             reads                        schedule; reads; what is due the server itself puts on retry
//	USAGE               counts and reads             counts statistics
//	KV accounts, keys   changes and reads            reads
//	KV alarms           makes and reads              makes and reads
//	KV operations       pauses and reads             reads
//	KV store            reads                        reads
//	the others          makes and reads              –
//
// So an edge cannot claim or settle an attempt, and a dispatcher can neither make a session nor decide how
// one ended.
var accesses = map[Role][]access{
	RoleEdge: {
		{BucketStream(BucketSessions), []string{BucketSubject(BucketSessions, ">")}, many},
		{StreamSessionKeys, []string{"session-keys.*"}, single},
		{StreamCompletions, []string{"completion.*", "resend.*.*"}, many},
		{StreamEvents, []string{"session.*.*"}, single},
		{StreamRetries, nil, many}, // operators' pages tell the backlog
		{StreamUsage, []string{"usage.*.*", "stat.*.*.*"}, many},
		{StreamAudit, []string{"audit.*.*"}, many},
		{BucketStream(BucketAccounts), []string{BucketSubject(BucketAccounts, ">")}, many},
		{BucketStream(BucketKeys), []string{BucketSubject(BucketKeys, ">")}, many},
		{BucketStream(BucketLogins), []string{BucketSubject(BucketLogins, ">")}, single},
		{BucketStream(BucketKeyUses), []string{BucketSubject(BucketKeyUses, ">")}, many},
		{BucketStream(BucketIdempotency), []string{BucketSubject(BucketIdempotency, ">")}, single},
		{BucketStream(BucketIdentities), []string{BucketSubject(BucketIdentities, ">")}, single},
		{BucketStream(BucketAlarms), []string{BucketSubject(BucketAlarms, ">")}, many},
		// operators and login links are made by an operator's credential
		{BucketStream(BucketOperations), []string{BucketSubject(BucketOperations, "pause.*")}, many},
		{BucketStream(BucketStore), nil, many},
	},
	RoleDispatcher: {
		{StreamSessionKeys, nil, single},
		{StreamCompletions, []string{"claim.*.*", "result.*.*"}, single},
		{StreamEvents, []string{"session.not_sent.*"}, unread},
		{StreamRetries, []string{"schedule.*"}, many},
		{StreamUsage, []string{"stat.*.*.*"}, unread},
		{BucketStream(BucketAccounts), nil, many},
		{BucketStream(BucketKeys), nil, many},
		{BucketStream(BucketAlarms), []string{BucketSubject(BucketAlarms, ">")}, many},
		{BucketStream(BucketOperations), nil, many},
		{BucketStream(BucketStore), nil, single},
	},
}

// PermissionsOf returns what a role may do as the user of that name, which is the public part of its nkey,
// or its user name.
func PermissionsOf(role Role, user string) Permissions {
	if role == RoleOperator {
		return Permissions{Unlimited: true}
	}
	p := Permissions{
		Publish: Rule{Allow: []string{
			subjectUserInfo, "$JS.API.INFO",
			"$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.INFO.*.*", // settings and figures
		}},
		Listen: Rule{Allow: []string{inboxOf(user) + ".>"}},
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
		p.Listen.Allow = append(p.Listen.Allow, SubjectAlarms+".>")
	case RoleOperator: // answered above
	}
	return p
}

// edge adds what edges tell each other and listeners' callbacks (package natsconf/devtunnel), and keeps them
// off the dispatchers' consumers.
func (p *Permissions) edge() {
	p.Publish.Allow = append(p.Publish.Allow, SubjectSpent, SubjectFleet, SubjectAlarms+".>", "listened.*.*",
		answers)
	p.Listen.Allow = append(p.Listen.Allow, SubjectSpent, SubjectFleet, "listen.*", "listen.*.*")
	for _, c := range DispatcherConsumers() {
		p.Publish.Deny = append(p.Publish.Deny, consumerSubjects(c)...)
	}
}

func (p *Permissions) dispatcher() {
	p.Publish.Allow = append(p.Publish.Allow, SubjectAlarms+".>", "listen.*", "listen.*.*", answers)
	p.Listen.Allow = append(p.Listen.Allow, SubjectFleet, "listened.*.*")
	for _, c := range DispatcherConsumers() {
		p.Publish.Allow = append(p.Publish.Allow, consumerSubjects(c)...)
		p.Publish.Allow = append(p.Publish.Allow, "$JS.ACK."+c.Stream+"."+c.Config.Durable+".>")
	}
	slices.Sort(p.Publish.Allow)
	p.Publish.Allow = slices.Compact(p.Publish.Allow)
}

// subjects are what the access takes.
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

// consumerSubjects are what making, changing, reading and deleting a durable consumer takes.
func consumerSubjects(c ConsumerAsset) []string {
	name := c.Stream + "." + c.Config.Durable
	return []string{
		"$JS.API.CONSUMER.CREATE." + name, "$JS.API.CONSUMER.CREATE." + name + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + name, "$JS.API.CONSUMER.DELETE." + name,
	}
}

func inboxOf(user string) string { return inboxes + "." + user }
