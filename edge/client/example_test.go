//nolint:testableexamples // they need a service; cmd/verifyd runs the same calls against one
package client_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"verifyd/edge/client"
)

// Start a session and send the user to its link.
func Example() {
	c, err := client.New("https://verify.example.com", os.Getenv("VERIFYD_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	started, err := c.Start(context.Background(), client.Verification{
		Platform: "discord", PlatformUserID: "sailor_42", GuildID: "118203948571029384",
		CallbackURL:    "https://bot.example.com/verified",
		IdempotencyKey: "verify-command-9177", // the id of what asked for it: Start may be repeated
	})
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == client.CodeRateLimited {
		log.Printf("try again in %s", refused.RetryAfter)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open %s before %s", started.VerifyURL, started.ExpiresAt.Format(time.Kitchen))
}

// Receive the results.
func ExampleNewReceiver() {
	receiver, err := client.NewReceiver([]string{os.Getenv("VERIFYD_SIGNING_SECRET")},
		func(_ context.Context, r client.Result) error {
			if r.Verified {
				log.Printf("%s of %s is verified", r.PlatformUserID, r.GuildID)
			}
			return nil // an error is answered with 500: the result can be sent again
		})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/verified", receiver)
	// behind a proxy that speaks https
	server := &http.Server{Addr: ":8000", Handler: mux, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// A program without a public address can wait for the outcome instead.
func ExampleClient_Wait() {
	c, err := client.New("http://localhost:8080", os.Getenv("VERIFYD_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	session, err := c.Wait(context.Background(), os.Args[1]) // at most the ten minutes that a session lives
	if err != nil {
		log.Fatal(err)
	}
	log.Println(session.State, session.Reason)
}
