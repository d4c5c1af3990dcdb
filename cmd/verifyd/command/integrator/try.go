// Package integrator has the commands for developers who integrate the service: judging a receiver, bringing
// callbacks to a program on this machine, and showing the whole path.
package integrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/receivertest"
	"verifyd/cmd/verifyd/version"
)

// tryPause is the interval between two looks for whether the receiver has its secret.
const tryPause = 2 * time.Second

// Try judges a receiver. Its flags do not use the service's variables: VERIFYD_CALLBACK_CA_FILE on an
// operator's machine is not meant for an integrator's receiver.
type Try struct {
	URL          string        `arg:"" help:"The receiver's callback_url."`
	Secret       string        `secret:"" env:"VERIFYD_TRY_SECRET" placeholder:"whsec_…" help:"Its signing secret; default: a new one, which is printed. The variable keeps it out of the shell's history."`
	Wait         time.Duration `default:"2m" help:"How long to wait until the receiver accepts the new secret."`
	AllowPrivate bool          `help:"Also test receivers on this machine, even by http://localhost, and in private networks."`
	CAFile       string        `name:"ca-file" placeholder:"FILE" help:"Extra PEM roots for its certificate."`
	Timeout      time.Duration `default:"10s" help:"Time limit of a whole attempt, as VERIFYD_CALLBACK_TIMEOUT."`
	User         string        `default:"verifyd-try" help:"platform_user_id in the callbacks."`
	Guild        string        `default:"verifyd-try" help:"guild_id in the callbacks."`
	JSON         bool          `name:"json" help:"Print one JSON document instead of a table."`
}

// Run tries the receiver. It fails if a check does.
func (t Try) Run(ctx context.Context, c command.Console) error {
	var f config.Faults
	pool := config.Roots(&f, "ca-file", t.CAFile)
	if t.Timeout < time.Second || t.Timeout > time.Minute {
		f.Add("timeout", fmt.Sprintf("%s is out of range", t.Timeout), "use 1s to 1m, for example 10s")
	}
	if err := f.OwnErr(); err != nil {
		return config.Usage(err)
	}
	made := t.Secret == ""
	if made {
		t.Secret = receivertest.NewSecret()
	}
	bench, err := receivertest.New(receivertest.Options{
		URL: t.URL, Secret: t.Secret, AllowPrivate: t.AllowPrivate, Roots: pool, Timeout: t.Timeout,
		UserAgent: "verifyd/" + version.Text(),
		User:      t.User, Guild: t.Guild,
	})
	if err != nil {
		return config.Usage(err)
	}
	defer bench.Close()
	if made {
		t.await(ctx, c, bench)
	}
	report, err := bench.Run(ctx)
	if err != nil {
		return err
	}
	show := report.Print
	if t.JSON {
		show = report.JSON
	}
	if err := show(c.Out); err != nil {
		return err
	}
	if !report.Ready() {
		return errors.New("the receiver is not ready for real callbacks")
	}
	return nil
}

// await prints the new secret, and waits until the receiver accepts a callback signed with it, or the time is
// over: the checks then report what is wrong.
func (t Try) await(ctx context.Context, c command.Console, bench *receivertest.Bench) {
	_, _ = fmt.Fprintf(c.Err, "No signing secret was given, so this one was created:\n\n    %s\n\n"+
		"Give it to the receiver. The checks begin as soon as it accepts a callback signed with it, "+
		"after %s at the latest.\n", t.Secret, t.Wait)
	ctx, cancel := context.WithTimeout(ctx, t.Wait)
	defer cancel()
	tick := time.NewTicker(tryPause)
	defer tick.Stop()
	last := ""
	for {
		accepts, result := bench.Accepts(ctx)
		// an interrupted dial shows nothing
		if end, _ := ctx.Deadline(); accepts || ctx.Err() != nil || !time.Now().Before(end) {
			return
		}
		if result != last {
			_, _ = fmt.Fprintf(c.Err, "Not yet: %s.\n", result)
			last = result
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
