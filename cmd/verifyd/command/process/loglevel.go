package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/logging"
)

const (
	// logLevelWait bounds the request to the process, and logLevelBytes how much of its answer is read.
	logLevelWait  = 10 * time.Second
	logLevelBytes = 4 << 10
)

// LogLevel shows the log level of a running process, or changes it.
type LogLevel struct {
	Level       string        `arg:"" optional:"" help:"trace, debug, info, warn or error; without it the current level is shown."`
	For         time.Duration `help:"For how long; after that the previous level is restored. Default: permanently."`
	AdminListen string        `group:"process" default:"127.0.0.1:9090" help:"Operators' address of the process."`
}

// Run changes the log level of a running process, or prints it.
func (l LogLevel) Run(ctx context.Context, c command.Console) error {
	method, query := http.MethodGet, url.Values{}
	if l.Level != "" {
		if _, err := logging.ParseLevel(l.Level); err != nil {
			return config.Usage(err)
		}
		method = http.MethodPut
		query.Set("level", l.Level)
	}
	if l.For != 0 {
		if l.Level == "" {
			return config.Usage(errors.New(
				"--for: the level is missing; give it first, for example: verifyd " +
					"log-level debug --for 10m"))
		}
		query.Set("for", l.For.String())
	}
	ctx, cancel := context.WithTimeout(ctx, logLevelWait)
	defer cancel()
	at := url.URL{Scheme: "http", Host: l.AdminListen, Path: "/debug/log-level", RawQuery: query.Encode()}
	q, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return config.Usage(fmt.Errorf("--admin-listen: %q is not host:port; for example 127.0.0.1:9090",
			l.AdminListen))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(q)
	if err != nil {
		return fmt.Errorf("ask the process at %s: %w; give its VERIFYD_ADMIN_LISTEN with --admin-listen",
			l.AdminListen, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, logLevelBytes))
	if err != nil {
		return fmt.Errorf("read the process's answer: %w", err)
	}
	return printLogLevel(c, answer.StatusCode, body)
}

func printLogLevel(c command.Console, status int, body []byte) error {
	switch status {
	case http.StatusOK:
	case http.StatusBadRequest:
		return config.Usage(errors.New(strings.TrimSpace(string(body))))
	default:
		return fmt.Errorf("the process answered %d: it is not verifyd serve, or a version without this",
			status)
	}
	var doc struct {
		Level string `json:"level"`
		Until string `json:"until"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("read the process's answer: %w", err)
	}
	if doc.Until != "" {
		_, err := fmt.Fprintf(c.Out, "%s until %s\n", doc.Level, doc.Until)
		return err
	}
	_, err := fmt.Fprintln(c.Out, doc.Level)
	return err
}
