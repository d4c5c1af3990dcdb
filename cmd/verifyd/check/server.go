package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/topology"
)

// The checks of a NATS server that answers: what the credential may do, its limits, clock, free space and
// streams.

// permissionsShown bounds how many subjects a line names.
const permissionsShown = 4

// checkPermissions compares what the credential may do with what the roles of this process need.
func checkPermissions(ctx context.Context, s *Survey, conn *natsconf.Conn, c config.Config) {
	g, err := conn.Grants(ctx)
	if err != nil {
		s.Warn("permissions", "let the credential publish to $SYS.REQ.USER.INFO, as verifyd prepare does",
			"%s", err)
		return
	}
	var lacking []string
	for _, role := range c.NATSRoles() {
		lacking = append(lacking, g.Lacking(role)...)
	}
	excess := g.Excess(c.NATSRoles()...)
	switch {
	case len(lacking) > 0:
		s.err("permissions", "use the credential of the role, or give this one what verifyd prepare prints",
			"this credential may not %s", some(lacking))
	case len(excess) > 0:
		s.Warn("permissions", "use a credential of only that role, as verifyd prepare creates them",
			"this credential may also write %s, which is for another role", some(excess))
	default:
		s.ok("permissions", "the credential may do what this process needs, and write nothing else")
	}
}

// some lists the first of many.
func some(list []string) string {
	if len(list) <= permissionsShown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:permissionsShown], ", "),
		len(list)-permissionsShown)
}

// checkServer checks a server that has been reached.
func checkServer(ctx context.Context, s *Survey, conn *natsconf.Conn, c config.Config) {
	if err := askServer(ctx, s, conn, c); err != nil {
		s.err("server", "JetStream must be enabled for these credentials, with leave to use its API "+
			"($JS.API.>)", "%s", err)
		return
	}
	checkIdentities(ctx, s, conn, c)
	checkNames(ctx, s, conn, c)
}

// checkEachServer looks at all servers: the connection is to one of them.
func checkEachServer(ctx context.Context, s *Survey, conn *natsconf.Conn) {
	conn.Servers.Look(ctx)
	if err := conn.Servers.Unusable(); err != nil {
		s.Warn("server", "check each of these servers; processes use the others meanwhile",
			"not every server of VERIFYD_NATS_URL can be used: %s", err)
	}
	checkCertificates(s, conn.Servers.Certificates())
}

// checkCertificates checks for how long certificates are valid. None of them keeps a service from starting:
// without its server it waits, and a root may be needed no more.
func checkCertificates(s *Survey, all []certificate.Certificate) {
	for _, c := range all {
		if now := time.Now(); c.Due(now) {
			s.Warn("certificates", "renew it, as docs/OPERATING.md says below \"Certificates\"", "%s",
				c.Text(now))
		} else {
			s.ok("certificates", "%s", c.Text(now))
		}
	}
}

// askServer asks a server, and returns why it did not answer.
func askServer(ctx context.Context, s *Survey, conn *natsconf.Conn, c config.Config) error {
	in, err := provision.Ensurer{Conn: conn, Topology: topology.New(c.Store.Topology)}.Inspect(ctx)
	if old, ok := errors.AsType[*provision.VersionError](err); ok {
		s.err("server", "upgrade the NATS server", "%s", old)
		return nil
	}
	if err == nil {
		where := in.URL
		if in.Cluster != "" {
			where += ", cluster " + in.Cluster
		}
		s.ok("server", "NATS %s at %s, %s away", in.Version, where, in.RTT.Round(10*time.Microsecond))
	}
	if c.Store.NATSURL != "" {
		checkPermissions(ctx, s, conn, c)
	}
	if err != nil {
		return err
	}
	if hasLeft(ctx, s, conn) {
		return nil // the topology of a retired store differs from the table
	}
	for _, look := range there {
		look(s, in, c)
	}
	checkShortening(ctx, s, conn, in, c)
	return nil
}

// hasLeft reports whether the service has left the store for another.
func hasLeft(ctx context.Context, s *Survey, conn *natsconf.Conn) bool {
	standing, err := storestate.Read(ctx, conn)
	if err != nil || store.ToServe.Admits(standing) == nil {
		return false
	}
	s.err("standing", "serve the store that is in service", "%s", &storestate.Error{Record: standing})
	return true
}

func checkEncryption(s *Survey, in provision.Inspection, c config.Config) {
	if c.Store.NATSURL != "" && !in.TLS {
		s.Warn("server", "use tls:// in VERIFYD_NATS_URL unless the network in between is private",
			"the connection to NATS is not encrypted")
	}
}

// minPayload has room for the largest record: a callback URL, three texts of 1,024 bytes each written with
// escapes, and their seal.
const minPayload = 64 << 10

// checkLimits checks what the server and the account allow.
func checkLimits(s *Survey, in provision.Inspection, c config.Config) {
	before := len(s.findings)
	if in.MaxPayload < minPayload {
		s.err("limits", "raise max_payload of the server", "messages may have %d bytes, verifyd needs %d",
			in.MaxPayload, minPayload)
	}
	t := topology.New(c.Store.Topology)
	streams, consumers := len(t.Streams), len(t.Consumers)
	if in.MaxStreams >= 0 && in.MaxStreams < streams {
		s.err("limits", "raise the account's limit of streams",
			"the account may have %d streams, verifyd needs %d", in.MaxStreams, streams)
	}
	if in.MaxConsumers >= 0 && in.MaxConsumers < minConsumers+consumers {
		s.err("limits", "raise the account's limit of consumers",
			"the account may have %d consumers, verifyd needs %d, and two more for each edge and each "+
				"list that is read",
			in.MaxConsumers, minConsumers+consumers)
	}
	if in.MaxAckPending > 0 {
		s.Warn("limits", "remove the account's limit of pending acknowledgements",
			"%d of them: that many deliveries to receivers that do not answer would stop all others",
			in.MaxAckPending)
	}
	if in.MaxBytesRequired {
		s.err("limits", "let the account have streams without a size limit",
			"the account demands a size limit of each stream; verifyd bounds its streams by age")
	}
	if in.StoreMaxStreamBytes > 0 {
		s.Warn("limits", "remove it, or watch the sizes that verifyd status shows",
			"one stream may have %d MiB: beyond that it loses its oldest messages, or accepts no new ones",
			in.StoreMaxStreamBytes>>20)
	}
	if len(s.findings) == before {
		s.ok("limits", "the server allows what is needed")
	}
}

// minConsumers is how many consumers one process has in addition to the dispatchers': of its mirrors, its
// watch, and of lists.
const minConsumers = 8

func checkClock(s *Survey, in provision.Inspection, _ config.Config) {
	skew := in.Skew.Abs()
	switch {
	case !in.SkewKnown:
	case skew >= storetime.MaxSkew:
		s.err("clock", "synchronize both machines' clocks by NTP",
			"the server's clock is %s off this machine's: a service here settles, gives up and deletes "+
				"nothing", in.Skew)
	case skew >= skewWarning:
		s.Warn("clock", "synchronize both machines' clocks by NTP",
			"the server's clock is %s off this machine's", in.Skew)
	default:
		s.ok("clock", "within %s of the server's", max(skew, in.RTT).Round(time.Millisecond)+time.Millisecond)
	}
}

func checkStoreRoom(s *Survey, in provision.Inspection, c config.Config) {
	switch {
	case in.MaxStore > 0:
	case c.Store.NATSURL == "":
		s.ok("store", "%d MiB used", in.Used>>20) // the process that runs the store keeps its limit
		return
	default:
		s.Warn("store", "give the account one: verifyd prepare --store-limit, or max_store if you "+
			"write its configuration yourself",
			"%d MiB used, no limit in the account: nobody is notified when the disks fill, and no room is "+
				"kept for open sessions", in.Used>>20)
		return
	}
	share := float64(in.Used) / float64(in.MaxStore)
	if share >= FullWarning {
		s.Warn("store", "raise the limit, or lower VERIFYD_KEEP_RESULTS; from 90 % on no new session "+
			"is accepted", "%.0f %% of %d MiB are used", 100*share, in.MaxStore>>20)
		return
	}
	s.ok("store", "%d of %d MiB used", in.Used>>20, in.MaxStore>>20)
}

// checkServers checks whether there are as many servers as a start would give copies to a stream.
func checkServers(s *Survey, in provision.Inspection, c config.Config) {
	wanted := c.Store.Topology.Replicas
	asks := slices.ContainsFunc(in.Differences, func(d provision.Difference) bool {
		return d.Kind == provision.Missing || d.Field == "num_replicas"
	})
	if !asks || wanted <= 1 || in.Cluster != "" && wanted <= in.Servers {
		return
	}
	if in.Cluster != "" { // the client may not be told of all of them
		s.Warn("replicas", "start the cluster's other servers, or set VERIFYD_REPLICAS to as many as it has",
			"%d copies of every stream are wanted, and %d servers of the cluster are known", wanted,
			in.Servers)
		return
	}
	report := s.Warn // with a credential that leaves the streams as they are the service starts
	if in.MayUpdate {
		report = s.err
	}
	report("replicas", "set VERIFYD_REPLICAS=1, or name the servers of a cluster in VERIFYD_NATS_URL",
		"%d copies of every stream are wanted, and %s is a single server, which keeps one", wanted, in.URL)
}

// checkQuorum checks whether the streams of external servers have their leaders and copies now.
func checkQuorum(s *Survey, in provision.Inspection, c config.Config) {
	streams, servers := provision.Degraded(in.Streams)
	switch {
	case c.Store.NATSURL == "" || len(in.Streams) == 0:
	case len(streams) > 0:
		s.Warn("replicas", "start the NATS servers that are away; verifyd status shows when every copy is "+
			"current", "%s", provision.DegradedText(streams, servers))
	default:
		s.ok("replicas", "all copies of all streams are current")
	}
}

func checkTopology(s *Survey, in provision.Inspection, c config.Config) {
	var missing, outdated, lasting []string
	for _, d := range in.Differences {
		if d.Field == "num_replicas" && in.Cluster == "" {
			continue // checkServers reports it, once
		}
		switch d.Kind {
		case provision.Missing:
			missing = append(missing, d.Asset)
		case provision.Updated:
			s.Warn("topology", "nothing to do if this is intended; the next start of the service changes it",
				"%s: %s is %s, these settings ask for %s", d.Asset, d.Field, d.Have, d.Want)
		case provision.Outdated:
			outdated = append(outdated, strings.TrimPrefix(d.Asset, "stream "))
		case provision.Lasting:
			lasting = append(lasting, strings.TrimPrefix(d.Asset, "stream "))
		case provision.Drift:
			s.err("topology", "move the data to a fresh stream, or restore the setting",
				"%s: %s is %s on the server, verifyd needs %s", d.Asset, d.Field, d.Have, d.Want)
		}
	}
	if c.Store.NATSURL != "" { // no credential leads to an embedded store
		checkOutdated(s, slices.Compact(outdated), lasting)
	}
	switch {
	case len(missing) > 0:
		s.ok("topology", "the next start creates %s", strings.Join(missing, ", "))
	case len(in.Differences) == len(outdated)+len(lasting):
		s.ok("topology", "as it should be")
	}
}

// checkOutdated reports what streams of builds before 0.10.0 allow and those of this build do not.
func checkOutdated(s *Survey, outdated, lasting []string) {
	if len(outdated) > 0 {
		s.Warn("topology", "run verifyd apply --finish once no build before 0.10.0 runs any more",
			"one message can empty %s: they allow roll-ups, which older builds need",
			strings.Join(outdated, ", "))
	}
	if len(lasting) > 0 {
		s.Warn("topology", "no server takes that back: verifyd move brings the data into a store without it",
			"a message can be stored in %s with a life of a second: an older build made it so",
			strings.Join(lasting, ", "))
	}
}
