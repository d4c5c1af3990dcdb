package main

import (
	_ "code.dny.dev/ssrf"
	_ "github.com/alecthomas/kong"
	_ "github.com/chromedp/chromedp"
	_ "github.com/coreos/go-oidc/v3/oidc"
	_ "github.com/go-jose/go-jose/v4"
	_ "github.com/go-json-experiment/json"
	_ "github.com/julienschmidt/httprouter"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rs/zerolog"
	_ "github.com/standard-webhooks/standard-webhooks/libraries/go"
	_ "github.com/thejerf/suture/v4"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/oauth2"
	_ "pgregory.net/rapid"
)

func main() {}
