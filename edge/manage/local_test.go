package manage

import (
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/grant"
	"verifyd/edge/account/input"
	client "verifyd/edge/client/manage"
	"verifyd/natsconf/natstest"
)

// A client in the process gets what one over the network gets, and the audit log names its operator.
func TestLocalAnswersAsTheNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	here := client.Over(r.handler.Local(console))
	there, err := client.New(r.URL, r.token(grant.Scopes()...), r.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	a, err := here.CreateAccount(ctx, "Harbor Guild", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := here.ChangeAccount(ctx, a.ID, client.Changes{"quota": 5, "colour": "#1f5fd0"}); err != nil {
		t.Fatal(err)
	}
	k, err := here.CreateKey(ctx, a.ID, client.KeyOptions{Name: "bot", RateLimit: "5/s"})
	if err != nil || !k.Stored || k.Secret == "" {
		t.Fatalf("%+v, %v", k, err)
	}
	if s, err := here.RotateSecret(ctx, a.ID, time.Hour); err != nil || !s.Stored || s.Value == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	if i, err := here.CreateInvite(ctx, a.ID, "owner", "Ann"); err != nil || i.Link == "" {
		t.Fatalf("%+v, %v", i, err)
	}
	for what, read := range map[string]func(*client.Client) (any, error){
		"the account": func(c *client.Client) (any, error) { return c.Account(ctx, a.ID) },
		"its name":    func(c *client.Client) (any, error) { return c.AccountByName(ctx, "Harbor Guild") },
		"its members": func(c *client.Client) (any, error) { return c.Members(ctx, a.ID) },
		"its secrets": func(c *client.Client) (any, error) { return c.Secrets(ctx, a.ID) },
		"its key":     func(c *client.Client) (any, error) { return c.KeyByID(ctx, k.ID) },
		"its log": func(c *client.Client) (any, error) {
			records, _, err := c.Audit(ctx, a.ID, "", 100)
			return records, err
		},
	} {
		natstest.Await(t, what+" is the same", func() bool { // as soon as the mirror has the key
			one, oerr := read(here)
			other, terr := read(there)
			if oerr != nil || terr != nil {
				t.Fatalf("%s: %v, %v", what, oerr, terr)
			}
			return reflect.DeepEqual(one, other)
		})
	}
	page, err := r.accounts.Audit(ctx, a.ID, "", 100)
	if err != nil || len(page.Records) < 5 {
		t.Fatalf("%d records, %v", len(page.Records), err)
	}
	for _, record := range page.Records {
		if record.Who != console {
			t.Errorf("%s is by %v", record.What, record.Who)
		}
	}
}

// Its errors are the store's, or name what is wrong with the request, and its lists are whole.
func TestLocalErrorsAndLists(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	local := r.handler.Local(console)
	c, ctx := client.Over(local), t.Context()
	for _, name := range []string{"Harbor Guild", "Pier Guild"} {
		if _, err := c.CreateAccount(ctx, name, false); err != nil {
			t.Fatal(err)
		}
	}
	id := account.IDOf("Harbor Guild")
	if _, err := c.CreateAccount(ctx, "Harbor Guild", false); !errors.Is(err, account.ErrAccountExists) {
		t.Errorf("created twice: %v", err)
	}
	if _, err := c.Members(ctx, "acc_nobody"); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("members of nobody: %v", err)
	}
	for field, to := range map[string]client.Changes{
		"colour":         {"colour": "red"},
		"quota":          {"quota": 0},
		"body_too_large": {"name": strings.Repeat("x", 1<<20)},
	} {
		_, err := c.ChangeAccount(ctx, id, to)
		if e, ok := errors.AsType[*input.Error](err); !ok || e.Field != field || e.Detail == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := local.Call(ctx, http.MethodGet, "/manage/nothing", nil, nil); err == nil {
		t.Error("a path that is no route's is answered")
	}
	var list struct {
		Accounts []client.Account `json:"accounts"`
	}
	if err := local.Call(ctx, http.MethodGet, "/manage/accounts?limit=1", nil, &list); err != nil ||
		len(list.Accounts) != 2 {
		t.Errorf("a list has %d accounts: %v", len(list.Accounts), err)
	}
}

// Each route is found by its method and its path, whatever its parts are.
func TestLocalFindsEachRoute(t *testing.T) {
	t.Parallel()
	all := (&Handler{}).operations()
	for i, o := range all {
		for _, value := range []string{"acc_1", "", "..", "a/b %2F?#é", "keys", "move"} {
			path := regexp.MustCompile(`\{\w+\}`).ReplaceAllLiteralString(o.path, url.PathEscape(value))
			req, err := http.NewRequestWithContext(t.Context(), o.method, path+"?limit=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if found := slices.IndexFunc(all, func(o operation) bool { return o.takes(req) }); found != i {
				t.Errorf("%s %s leads to %d, want %d", o.method, path, found, i)
			}
			for _, name := range []string{"account", "key", "invite"} {
				if strings.Contains(o.path, "{"+name+"}") && req.PathValue(name) != value {
					t.Errorf("%s: %s is %q, want %q", path, name, req.PathValue(name), value)
				}
			}
		}
	}
}
