// Command release builds the parts of a release of verifyd: archives, packages for Debian and for rpm, an
// image, and the record of how they were made. docs/release/build runs it.
//
// All of it is made from one commit, and nothing in it depends on when, where or by whom: times are the
// commit's, owners are numbers or the service's user, and lists are sorted.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	src, err := look(ctx, ".")
	if err != nil {
		return err
	}
	out := filepath.Join("release", src.version)
	if len(args) > 0 {
		out = args[0]
	}
	for _, reason := range src.unreleased {
		fmt.Fprintln(os.Stderr, "not a release:", reason)
	}
	b := builder{source: src, targets: targets, out: out, log: os.Stderr}
	if err := b.build(ctx); err != nil {
		return err
	}
	_, err = fmt.Println(strings.TrimSuffix(out, "/"))
	return err
}
