package natstest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

const (
	// clusterVariable is the switch: where it is set, tests run on three clustered NATS servers with three
	// copies of every stream instead of an embedded one. Each test binary has servers of its own, and each
	// data directory an account of its own on them.
	clusterVariable = "VERIFYD_TEST_CLUSTER"
	// serversVariable makes a test binary be these servers. They run in a process of their own so that tests
	// which look for goroutines left behind find none of theirs, and they end with the test binary, however
	// it ends.
	serversVariable = "VERIFYD_TEST_CLUSTER_SERVERS"

	// nodes is how many servers the cluster has, and Replicas how many copies it keeps.
	nodes    = 3
	Replicas = 3
)

// OnCluster reports whether the tests run on a cluster.
func OnCluster() bool { return os.Getenv(clusterVariable) != "" }

// NeedsEmbedded skips a test that is about the embedded server itself, when the tests run on a cluster. why
// says what of it.
func NeedsEmbedded(tb testing.TB, why string) {
	tb.Helper()
	if OnCluster() {
		tb.Skip("on a cluster this has no counterpart: " + why)
	}
}

// cluster is this test binary's, started when it is first asked for.
var cluster struct {
	once  sync.Once
	hosts []string
	err   error

	// hold keeps the servers running: they end when their standard input does, which is when this process
	// ends.
	hold *os.File
}

// ClusterURL returns the servers' addresses with the credential of a data directory's account: who names the
// same directory meets the same store. The store is removed when the test ends.
func ClusterURL(tb testing.TB, dir string) string {
	tb.Helper()
	cluster.once.Do(func() { cluster.hosts, cluster.err = startCluster() })
	if cluster.err != nil {
		tb.Fatal(cluster.err)
	}
	sum := sha256.Sum256([]byte(dir))
	user := url.UserPassword("T"+hex.EncodeToString(sum[:8]), "any")
	urls := make([]string, 0, len(cluster.hosts))
	for _, host := range cluster.hosts {
		urls = append(urls, (&url.URL{Scheme: "nats", User: user, Host: host}).String())
	}
	all := strings.Join(urls, ",")
	tb.Cleanup(func() { wipe(tb, all) })
	return all
}

// wipe removes an account's streams, whose groups would go on taking the machine's time. A repeat is
// harmless.
func wipe(tb testing.TB, urls string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), TestTimeout)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{URL: urls, Name: "wipe", Log: zerolog.Nop()})
	if err != nil {
		tb.Log("the store is left behind:", err)
		return
	}
	defer conn.Close()
	var wg sync.WaitGroup
	for _, s := range topology.New(topology.Options{}).Streams {
		wg.Go(func() {
			if err := conn.JS.DeleteStream(ctx, s.Name); err != nil &&
				!errors.Is(err, jetstream.ErrStreamNotFound) {
				tb.Log("a stream is left behind:", err)
			}
		})
	}
	wg.Wait()
}

func startCluster() (hosts []string, err error) {
	cmd := exec.Command(os.Args[0]) //nolint:gosec // this very test binary
	cmd.Env = append(os.Environ(), serversVariable+"=1")
	hold, ready, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	cluster.hold = hold
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the servers did not start: %w", err)
	}
	return strings.Fields(line), nil
}

// startChild starts a process that ends when hold is closed, and of which told is the standard output.
func startChild(cmd *exec.Cmd) (hold, ready *os.File, err error) {
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	ready, stdout, err := os.Pipe()
	if err != nil {
		_, _ = stdin.Close(), hold.Close()
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
	err = cmd.Start()
	_, _ = stdin.Close(), stdout.Close() // the child has its own
	if err != nil {
		_, _ = hold.Close(), ready.Close()
		return nil, nil, fmt.Errorf("start the servers: %w", err)
	}
	return hold, ready, nil
}
