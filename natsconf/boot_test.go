package natsconf_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// Who waits for a server without JetStream is told what is likely missing there, and so is who gave up.
func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(natstest.TestTimeout) {
		t.Fatal("the server does not start")
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var waitsFor error
	_, last := natsconf.HoldsStoreAtBoot(ctx, natstest.ConnectTo(t, ns.ClientURL()), func(err error) {
		waitsFor = err
		giveUp()
	})
	for what, err := range map[string]error{"it waits": waitsFor, "it gives up": last} {
		if err == nil || !strings.Contains(err.Error(), "JetStream must be enabled on these servers") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
