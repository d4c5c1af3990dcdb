package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"verifyd/cmd/verifyd-bench/bench/load"
)

// worker is what a child does. Each order is answered before the next one is read.
type worker interface {
	// do carries out an order.
	do(ctx context.Context, o Order) (reply, error)
	// close ends what was started, and waits for it.
	close()
}

// workers has the constructors of the kinds of child.
var workers = map[string]func(ctx context.Context, c Config) (_ worker, address string, err error){
	Generator:   newPreparedServer,
	BareHandler: newBareHandler,
	BareClient:  newBareClient,
	BareSession: newBareSession,
	Publish:     newPublisher,
	Complete:    newCompleter,
}

// Main is the main of a child of the given kind: it reads a configuration and orders from in, a line each,
// and answers each with a line on out, until in ends.
func Main(ctx context.Context, kind string, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := readLines(ctx, in, cancel)
	first, ok := <-lines
	if !ok {
		return errors.New("this command is for verifyd-bench alone, " +
			"which tells it what to do on its standard input")
	}
	var c Config
	if err := json.Unmarshal(first, &c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	start, ok := workers[kind]
	if !ok {
		return fmt.Errorf("there is no child of kind %q", kind)
	}
	w, address, err := start(ctx, c)
	if err != nil {
		return answerWith(out, reply{Failed: err.Error()})
	}
	defer w.close()
	if err := answerWith(out, reply{Address: address}); err != nil {
		return err
	}
	for line := range lines {
		var o Order
		if err := json.Unmarshal(line, &o); err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		r, err := w.do(ctx, o)
		if err != nil {
			r.Failed = err.Error()
		}
		if err := answerWith(out, r); err != nil {
			return err
		}
	}
	return nil
}

// readLines reads in a goroutine of its own, which ends with the process: if the bench is gone, the current
// order ends.
func readLines(ctx context.Context, in io.Reader, ended context.CancelFunc) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		defer ended()
		for scan := bufio.NewScanner(in); scan.Scan(); {
			select {
			case lines <- append([]byte(nil), scan.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

func answerWith(out io.Writer, r reply) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a reply: %w", err)
	}
	if _, err := out.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write a reply: %w", err)
	}
	return nil
}

// replyOf reports a load.
func replyOf(l load.Result) reply {
	r := reply{
		Ops: l.Ops(), Took: l.Took, P50: load.Percentile(l.Latencies, 0.50),
		P99: load.Percentile(l.Latencies, 0.99), Errors: l.Errors,
	}
	if l.FirstErr != nil {
		r.Error = l.FirstErr.Error()
	}
	return r
}
