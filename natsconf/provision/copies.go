package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/wait"
)

const (
	// A leader under load is ahead of its copies at nearly any instant: at 6,000 messages a second a third of
	// the answers named a copy that was up to nine behind, and heard of milliseconds ago. So where a copy is
	// behind by no more than closeBehind, and was heard of since two of its leader's heartbeats, the leader
	// is asked again: a copy that is current at one of these instants holds everything.
	looks          = 5
	lookAgainAfter = 20 * time.Millisecond
	closeBehind    = 1000
	twoHeartbeats  = 2 * time.Second
)

// StreamHealth is the state of one stream.
type StreamHealth struct {
	Name        string
	Leader      string   // the server that leads it; empty if none answers
	Copies      int      // as the stream is configured; as the topology has it if nobody answers
	Current     int      // of these, those that hold everything and can be reached, the leader's included
	Behind      []string // the servers of those that do not, as far as the leader names them
	Messages    uint64
	Bytes       uint64
	Differences []Difference // from the topology
	Err         error        // why nothing is known; nil otherwise
}

// Check returns the state of the stream, and, if it is not healthy, why.
func (s StreamHealth) Check() (state string, err error) {
	if s.Err != nil {
		return "", s.Err
	}
	state = fmt.Sprintf("led by %s, %d of %d copies current, %d messages", s.Leader, s.Current, s.Copies,
		s.Messages)
	switch {
	case s.Leader == "":
		err = errors.New("no server leads it: nothing can be written")
	case s.Current < s.Copies/2+1:
		err = errors.New("fewer than a majority of its copies are current: nothing can be written")
	case s.Current < s.Copies:
		err = fmt.Errorf("a copy is missing or behind%s: one more failure may stop it", at(s.Behind))
	}
	return state, err
}

// Whole reports whether a leader is known, and all copies are current.
func (s StreamHealth) Whole() bool { return s.Leader != "" && s.Current >= s.Copies }

// at names servers after a text.
func at(servers []string) string {
	if len(servers) == 0 {
		return ""
	}
	return " at " + strings.Join(servers, ", ")
}

// healthOf returns what a leader has reported.
func healthOf(info *jetstream.StreamInfo) StreamHealth {
	s := StreamHealth{
		Name: info.Config.Name, Copies: info.Config.Replicas, Current: 1, Messages: info.State.Msgs,
		Bytes: info.State.Bytes,
	}
	if info.Cluster == nil {
		return s
	}
	s.Leader = info.Cluster.Leader
	for _, r := range info.Cluster.Replicas {
		if r.Current && !r.Offline {
			s.Current++
		} else {
			s.Behind = append(s.Behind, r.Name)
		}
	}
	return s
}

// Degraded returns the streams that are not whole, and the servers whose copies are not current, both sorted.
func Degraded(all []StreamHealth) (streams, servers []string) {
	for _, s := range all {
		if !s.Whole() {
			streams, servers = append(streams, s.Name), append(servers, s.Behind...)
		}
	}
	slices.Sort(streams)
	slices.Sort(servers)
	return streams, slices.Compact(servers)
}

// DegradedText describes what Degraded returned.
func DegradedText(streams, servers []string) string {
	return fmt.Sprintf("streams without a leader, or without a current copy%s: %d; one more failure may "+
		"stop the service", at(servers), len(streams))
}

// settled returns what the leader of a stream reports, looked at again while a copy is closely behind.
func settled(ctx context.Context, s jetstream.Stream) *jetstream.StreamInfo {
	info := s.CachedInfo()
	for range looks - 1 {
		if !closelyBehind(info) || wait.Pause(ctx, lookAgainAfter) != nil {
			break
		}
		if again, err := s.Info(ctx); err == nil {
			info = again
		}
	}
	return info
}

// closelyBehind reports whether a copy is behind in the way that load makes it be.
func closelyBehind(info *jetstream.StreamInfo) bool {
	if info.Cluster == nil {
		return false
	}
	return slices.ContainsFunc(info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool {
		return !r.Current && !r.Offline && r.Lag <= closeBehind && r.Active <= twoHeartbeats
	})
}
