package simulation_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/network"
	"verifyd/edge/signin"
	"verifyd/edge/web"
)

// baseURL is the address of the edges for browsers.
const baseURL = "https://verify.example"

type requesters struct{}

func (requesters) Requester(id string) (signin.Requester, bool) {
	return signin.Requester{ID: id, Name: "Harbor"}, true
}

// runEdge makes a process an edge, with networks and pages of its own.
func runEdge(l *life) (func(context.Context), error) {
	var own []*network.Network
	for _, n := range networks {
		made, err := network.New(n.settings(), network.Options{
			BaseURL: baseURL, Dial: l.dial, Issued: l.conn.Clock.Now,
		})
		if err != nil {
			return nil, err
		}
		own = append(own, made)
	}
	pages, err := signin.New(signin.Config{
		BaseURL: baseURL, Sessions: l.store, Networks: own, Accounts: requesters{}, Key: storeKey,
		Log: zerolog.Nop(), Now: l.conn.Clock.Now,
	})
	if err != nil {
		return nil, err
	}
	l.pages, err = web.New(web.Config{Routes: pages.Routes(), Nowhere: pages.Nowhere, Log: zerolog.Nop(),
		Metrics: prometheus.NewRegistry()})
	return func(ctx context.Context) { <-ctx.Done() }, err
}
