package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/natsconf/secretbox"
)

// bench is a running bench.
type bench struct {
	o        Options
	sync     string // of the rows being measured
	dir      string // of everything
	progress *report.Progress
	outside  *outside
	key      secretbox.Key
	sites    int // made so far
	samples  report.Samples
}

// add adds what was measured, unless it was cut short.
func (b *bench) add(ctx context.Context, s report.Sample) {
	if ctx.Err() == nil {
		b.samples.Add(b.sync, s)
	}
}

// newSite creates what a service on a fresh store needs around it. The authority of the outside parties is
// trusted.
func (b *bench) newSite() (site, error) {
	b.sites++
	h := site{
		dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), sync: b.sync, key: b.key,
		caFile: filepath.Join(b.dir, "ca.pem"),
		allow:  func(base string) { b.outside.network.AllowRedirect(base + "/signin/default/callback") },
	}
	if b.o.CopyTo != "" {
		h.copyTo = filepath.Join(b.o.CopyTo, filepath.Base(h.dir))
		if err := os.Mkdir(h.copyTo, 0o700); err != nil {
			return h, fmt.Errorf("--copy-to: %w", err)
		}
	}
	n := b.outside.network.Settings()
	h.env = []string{
		"VERIFYD_NETWORK_ISSUER=" + n.Issuer, "VERIFYD_NETWORK_NAME=Bench Network",
		"VERIFYD_NETWORK_CLIENT_ID=" + n.ClientID, "VERIFYD_NETWORK_CLIENT_SECRET=" + n.ClientSecret,
		"SSL_CERT_FILE=" + h.caFile, // the system's, as a service has for networks
	}
	if err := os.WriteFile(h.caFile, b.outside.ca.PEM(), 0o600); err != nil {
		return h, fmt.Errorf("write the authority of the outside parties: %w", err)
	}
	return h, nil
}

// freshService starts the service on a store of its own. Its end removes both.
func (b *bench) freshService(ctx context.Context, roles string) (*service, func(), error) {
	h, err := b.newSite()
	if err != nil {
		return nil, nil, err
	}
	s, err := b.o.startService(ctx, h, roles)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		s.discard()
		// It is repeated at the end of the suite, where a failure counts.
		_ = external{b.o}.wipe(context.WithoutCancel(ctx))
	}
	if err := s.enroll(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// childStore is a store of its own for a child that writes.
func (b *bench) childStore() child.StoreConfig {
	b.sites++
	return child.StoreConfig{
		Dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), Sync: b.sync,
		NATSURL: b.o.NATSURL, NATSCreds: b.o.NATSCreds, Replicas: b.o.Replicas,
	}
}

// announce shows the next run of a row.
func (b *bench) announce(run int, format string, args ...any) {
	b.progress.Step(fmt.Sprintf("%s, sync %s, run %d of %d", fmt.Sprintf(format, args...), b.sync, run+1,
		b.o.Runs))
}
