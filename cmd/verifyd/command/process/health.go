package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
)

const (
	// healthTimeout is shorter than the default timeout of container runtimes.
	healthTimeout = 5 * time.Second
	healthBytes   = 4 << 10
)

// Health asks a process on this machine whether it is ready; for containers, which have no other client.
type Health struct {
	AdminListen string `group:"process" default:"127.0.0.1:9090" help:"Operators' address of the process, where /readyz is requested."`
	URL         string `name:"url" placeholder:"URL" help:"Request this address instead."`
}

// Run succeeds if the answer is 200, and reports the answer otherwise.
func (h Health) Run(ctx context.Context, c command.Console) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	target := h.URL
	if target == "" {
		var f config.Faults
		if target = readyURL(config.Address(&f, "admin-listen", h.AdminListen)); f.Err() != nil {
			return config.Usage(f.Err())
		}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return config.Usage(fmt.Errorf("--url: %w; for example http://127.0.0.1:9090/readyz", err))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, healthBytes))
	_, _ = fmt.Fprintln(c.Out, strings.TrimSpace(string(text)))
	return fmt.Errorf("%s answered %s", target, answer.Status)
}

// readyURL returns the URL of /readyz; a server that listens on every interface is reached by loopback.
func readyURL(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz"
}
