package api

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"verifyd/edge/account"
)

// Any query of a list is restricted to the account of the key, and to sessions of its kind; an unknown name
// is a fault, and an accepted parameter is within its bounds and occurs once.
func FuzzListQuery(f *testing.F) {
	for _, s := range []string{
		"", "limit=100&cursor=04", "limit=0", "state=pending&state=verified&delivery=due",
		"since=2026-11-21T12:03:11Z",
		"until=2026-11-21T12:03:11%2B01:00&since=2027-11-21T12:03:11Z", "account=acc_b", "Account=x",
		"test=true",
		"cursor=a&cursor=b", "platform_user_id=%00", "a=%zz", "limit=+5", "state=",
		"q=sailor&group=g&platform=chat&mode=live", "q=+", "mode=test", "key=bot&network=dev", "key=none",
		"from=2026-11-21&to=2026-11-20", "from=2026-11-21&since=2026-11-22T00:00:00Z&to=2026-11-23",
		"reason=declined&reason=expired&binding=code",
	} {
		f.Add(s)
	}
	one := []string{"platform_user_id", "platform", "group", "since", "until", "from", "to", "limit",
		"cursor",
		"q", "key", "mode"}
	several := []string{"state", "delivery", "network", "reason", "binding"}
	lists := listings{&api{guard: guard{Config: Config{Keys: oneKey{}, Networks: []string{"dev"}}}}}
	f.Fuzz(func(t *testing.T, raw string) {
		who := account.Principal{Key: oneKey{}.Keys("acc_a")[0], Account: account.Account{ID: "acc_a"}}
		q, p := lists.listQuery(raw, who, false)
		if p != nil {
			if p.Code == "" || p.Detail == "" || len(p.Faults) == 0 {
				t.Fatalf("%q is refused with %+v", raw, p)
			}
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q is no query: %v", raw, err)
		}
		for name, given := range values {
			if !slices.Contains(several, name) && (!slices.Contains(one, name) || len(given) > 1) {
				t.Fatalf("%q: %s is accepted %d times", raw, name, len(given))
			}
		}
		if q.Account != "acc_a" || q.Test == nil || *q.Test || values.Get("mode") == "test" {
			t.Fatalf("%q asks for another's sessions: %+v", raw, q)
		}
		if q.Limit < 1 || q.Limit > maxListed || len(q.PlatformUserID) > MaxFieldBytes ||
			q.PlatformUserID != values.Get("platform_user_id") || q.Platform != values.Get("platform") ||
			q.Group != values.Get("group") || q.Cursor != values.Get("cursor") ||
			len(q.States) != len(values["state"]) || len(q.Deliveries) != len(values["delivery"]) ||
			len(q.Networks) != len(values["network"]) || len(q.Reasons) != len(values["reason"]) ||
			len(q.Levels) != len(values["binding"]) || (len(q.Keys) > 0) != values.Has("key") ||
			!q.Until.IsZero() && q.Until.Before(q.Since) {
			t.Fatalf("%q is read as %+v", raw, q)
		}
	})
}

// oneKey is an account with one live key.
type oneKey struct{}

func (oneKey) SeenSince(time.Time) bool { return true }

func (oneKey) Lookup(string) (account.Principal, error) {
	return account.Principal{}, account.ErrUnknownKey
}

func (oneKey) Keys(owner string) []account.Key {
	return []account.Key{{ID: "key_a", Account: owner, Name: "bot"}}
}
