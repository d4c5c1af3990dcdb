package client_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"verifyd/edge/client"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	const day = `"started":5,"steps":{"opened":4,"sign_in":3,"returned":2,"finished":2},"verified":1,"failed":{"declined":1,"refused":0},"canceled":0,"expired":3,
		"networks":[{"network":"github","sign_in":4,"returned":2,"trouble":1,"verified":1,"failed":{"declined":1,"refused":0}}],
		"callbacks":{"delivered":2,"rejected":0,"unknown":0,"undeliverable":0},"limited":{"rate_limited":7,"quota_exceeded":0},"replayed":6}`
	s, c := serve(t, say(200, "Content-Type: application/json",
		`{"month":"2026-11","test":true,"quota":100,"used":5,"remaining":95,
		"resets_at":"2026-12-01T00:00:00.000Z","total":{`+day+`,"days":[{"day":"2026-11-01",`+day+`]}`))
	u, err := c.Usage(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := client.UsageDay{
		Started: 5, Verified: 1,
		Failed: client.UsageFailed{Declined: 1}, Expired: 3,
		Networks: []client.UsageNetwork{{Network: "github", SignIn: 4, Returned: 2, Trouble: 1, Verified: 1,
			Failed: client.UsageFailed{Declined: 1}}}, Replayed: 6,
	}
	want.Steps.Opened, want.Steps.SignIn, want.Steps.Returned, want.Steps.Finished = 4, 3, 2, 2
	want.Callbacks.Delivered, want.Limited.RateLimited = 2, 7
	if !reflect.DeepEqual(u.Total, want) {
		t.Errorf("total = %+v", u.Total)
	}
	want.Day = "2026-11-01"
	if len(u.Days) != 1 || !reflect.DeepEqual(u.Days[0], want) || u.Month != "2026-11" || !u.Test ||
		u.Remaining != 95 || u.ResetsAt.Month() != time.December {
		t.Errorf("usage = %+v", u)
	}
	// The month is the UTC month.
	if _, err := c.Usage(t.Context(),
		time.Date(2026, 11, 1, 1, 0, 0, 0, time.FixedZone("", 2*60*60))); err != nil {
		t.Fatal(err)
	}
	if got := s.requests(); got[0].line != "GET /usage" || got[1].line != "GET /usage?month=2026-10" ||
		got[0].key != "Bearer "+apiKey {
		t.Errorf("asked %+v", got)
	}
	_, c = serve(t, say(400, "Content-Type: application/problem+json",
		`{"code":"invalid_request","status":400}`))
	_, err = c.Usage(t.Context(), time.Now().AddDate(1, 0, 0))
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Code != client.CodeInvalidRequest {
		t.Errorf("a month to come: %v", err)
	}
}
