package manage

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/grant"
	"verifyd/edge/limit"
	"verifyd/edge/problem"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf"
	"verifyd/sessions"
)

// keyCalls are the operations on API keys.
type keyCalls struct{ *Handler }

func (h keyCalls) operations() []operation {
	return []operation{
		{http.MethodGet, pathAllKeys, "manage_all_keys", grant.KeysRead, false, h.listAllKeys},
		{http.MethodGet, pathKeys, "manage_keys", grant.KeysRead, false, h.listKeys},
		{http.MethodPost, pathKeys, "manage_key_create", grant.KeysWrite, true, h.createKey},
		{http.MethodDelete, pathKey, "manage_key_revoke", grant.KeysWrite, false, h.revokeKey},
		{http.MethodPost, pathRoll, "manage_key_roll", grant.KeysWrite, true, h.rollKey},
	}
}

// keyDoc is an API key in an answer. A null member is not set: the service's default applies.
type keyDoc struct {
	ID          string  `json:"id"`
	Account     string  `json:"account"`
	AccountName string  `json:"account_name"`
	Name        string  `json:"name"`
	Mode        string  `json:"mode"`
	State       string  `json:"state"`
	Hint        string  `json:"hint"` // how people recognize it
	RateLimit   *string `json:"rate_limit"`
	Policy      *string `json:"policy"`
	CreatedAt   string  `json:"created_at"`
	ExpiresAt   *string `json:"expires_at"`
	RevokedAt   *string `json:"revoked_at"`
	Replaces    *string `json:"replaces"`
	ReplacedBy  *string `json:"replaced_by"`
}

// listedKeyDoc is a key in a list.
type listedKeyDoc struct {
	keyDoc

	LastUsedAt *string `json:"last_used_at"`
}

// secretKeyDoc is a key in the answer that created it.
type secretKeyDoc struct {
	keyDoc

	Secret string `json:"secret"`
	// Stored is false if the store did not confirm the key.
	Stored bool `json:"stored"`
}

func (h *Handler) keyOf(k account.Key) keyDoc {
	name, _ := h.Directory.Name(k.Account)
	return keyDoc{
		ID: k.ID, Account: k.Account, AccountName: name, Name: k.Name, Mode: k.Mode(),
		State: string(k.State(h.Now())), Hint: k.Prefix() + "…" + k.Last4, RateLimit: rateOrNull(k.RateLimit),
		Policy: orNull(string(k.Policy)), CreatedAt: web.Timestamp(k.CreatedAt),
		ExpiresAt: stampOrNull(k.ExpiresAt), RevokedAt: stampOrNull(k.RevokedAt),
		Replaces: orNull(k.Replaces), ReplacedBy: orNull(k.ReplacedBy),
	}
}

func rateOrNull(r account.Rate) *string {
	if r == (account.Rate{}) {
		return nil
	}
	return new(limit.RateText(r))
}

// keyList is a page of keys.
type keyList struct {
	Keys []listedKeyDoc `json:"keys"`
	Next *string        `json:"next"`
}

// GET /manage/keys lists the keys of all accounts, including deleted ones, oldest first; ?id= finds one.
func (h keyCalls) listAllKeys(c call) (answer, *problem.Problem) {
	q, p := c.query()
	if p != nil {
		return answer{}, p
	}
	id := q.Single("id")
	return h.pageOfKeys(c, q, func() ([]account.Key, error) {
		keys, err := h.Accounts.Keys(c.ctx())
		keys = slices.DeleteFunc(keys, func(k account.Key) bool { return id != "" && k.ID != id })
		if id != "" && len(keys) == 0 {
			return nil, err // it may be the one that cannot be read
		}
		return keys, c.unlisted(err)
	})
}

// GET /manage/accounts/{account}/keys lists the keys of an account, oldest first.
func (h keyCalls) listKeys(c call) (answer, *problem.Problem) {
	q, p := c.query()
	if p != nil {
		return answer{}, p
	}
	return h.pageOfKeys(c, q, func() ([]account.Key, error) {
		if _, err := h.Accounts.Account(c.ctx(), c.account()); err != nil {
			return nil, err
		}
		keys, err := h.Accounts.Keys(c.ctx())
		keys = slices.DeleteFunc(keys, func(k account.Key) bool { return k.Account != c.account() })
		return keys, c.unlisted(err)
	})
}

// pageOfKeys answers with a page of keys that are sorted by age.
func (h keyCalls) pageOfKeys(c call, q *request.Parameters, read func() ([]account.Key, error)) (answer,
	*problem.Problem) {
	count, after := c.limit(q), keyCursor(q)
	if p := q.Problem(); p != nil {
		return answer{}, p
	}
	keys, err := read()
	if err != nil {
		return answer{}, refusal(err)
	}
	from, is := slices.BinarySearchFunc(keys, after, account.Key.Compare)
	if is {
		from++
	}
	page := keys[from:min(from+count, len(keys))]
	used, err := h.Accounts.LastUsed(c.ctx())
	if err != nil {
		return answer{}, refusal(err)
	}
	doc := keyList{Keys: []listedKeyDoc{}}
	for _, k := range page {
		doc.Keys = append(doc.Keys, listedKeyDoc{h.keyOf(k), stampOrNull(used[k.ID])})
	}
	if from+count < len(keys) {
		last := page[len(page)-1]
		doc.Next = new(nextAfter(last.CreatedAt.Format(time.RFC3339Nano) + " " + last.ID))
	}
	return answer{status: http.StatusOK, doc: doc}, nil
}

// keyCursor reads the key after which a page begins, with only what its position needs.
func keyCursor(q *request.Parameters) account.Key {
	text := cursor(q)
	if text == "" {
		return account.Key{}
	}
	at, id, _ := strings.Cut(text, " ")
	created, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		q.Faultf("cursor", "it must be the next of an earlier answer")
	}
	return account.Key{CreatedAt: created, ID: id}
}

// POST /manage/accounts/{account}/keys creates a key, and shows it only this once.
func (h keyCalls) createKey(c call) (answer, *problem.Problem) {
	m, p := c.body("name", "mode", "expires_at", "rate_limit", "policy")
	if p != nil {
		return answer{}, p
	}
	o := keyOptions(m)
	if p := m.Problem(); p != nil {
		return answer{}, p
	}
	secret, k, err := h.Accounts.CreateKey(c.ctx(), c.by, c.account(), o)
	return h.madeKey(secret, k, err)
}

func keyOptions(m *request.Members) (o account.KeyOptions) {
	o.Name, _ = m.Text("name", false)
	mode, given := m.Text("mode", false)
	if given && mode != "live" && mode != "test" {
		m.Faultf("mode", problem.FaultValue, "the field is %.40q; it must be live or test", mode)
	}
	o.Test = mode == "test"
	if text, given := textOrNull(m, "expires_at"); given && text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			m.Faultf("expires_at", problem.FaultValue,
				"the field is not an instant; write it as in 2027-01-31T12:00:00Z")
		}
		o.ExpiresAt = at
	}
	if text, given := textOrNull(m, "rate_limit"); given && text != "" {
		rate, err := limit.ParseRate(text)
		if err != nil {
			m.Faultf("rate_limit", problem.FaultValue, "%.200s", err.Error())
		}
		o.RateLimit = rate
	}
	policy, _ := textOrNull(m, "policy")
	o.Policy = sessions.Policy(policy)
	if policy != "" && o.Policy != sessions.PolicyOnce && o.Policy != sessions.PolicyAtLeastOnce {
		m.Faultf("policy", problem.FaultValue, "the field is %.40q; it must be %s or %s", policy,
			sessions.PolicyOnce, sessions.PolicyAtLeastOnce)
	}
	return o
}

// madeKey answers with a new key. If the store did not confirm it, it is shown anyway: it may be the one that
// works.
func (h keyCalls) madeKey(secret string, k account.Key, err error) (answer, *problem.Problem) {
	doc := secretKeyDoc{h.keyOf(k), secret, true}
	switch {
	case err == nil:
		return answer{status: http.StatusCreated, doc: doc}, nil
	case secret != "" && errors.Is(err, natsconf.ErrUncertain):
		doc.Stored = false
		return answer{status: http.StatusAccepted, doc: doc}, nil
	default:
		return answer{}, refusal(err)
	}
}

const (
	// standardGrace is how long a rolled key keeps working if the request does not set it, as for the
	// command.
	standardGrace = 24 * time.Hour
	// maxSeconds keeps a number of seconds within a time.Duration; it is far above what is accepted.
	maxSeconds = int64(1 << 32)
)

// POST /manage/accounts/{account}/keys/{key}/roll replaces a key, and shows the new one only this once.
func (h keyCalls) rollKey(c call) (answer, *problem.Problem) {
	grace, p := c.span("grace_seconds", standardGrace)
	if p != nil {
		return answer{}, p
	}
	secret, k, err := h.Accounts.RollKey(c.ctx(), c.by, c.account(), c.key(), grace)
	return h.madeKey(secret, k, err)
}

// DELETE /manage/accounts/{account}/keys/{key} ends a key permanently. A repeat is harmless.
func (h keyCalls) revokeKey(c call) (answer, *problem.Problem) {
	k, err := h.Accounts.RevokeKey(c.ctx(), c.by, c.account(), c.key())
	if err != nil {
		return answer{}, refusal(err)
	}
	return answer{status: http.StatusOK, doc: h.keyOf(k)}, nil
}
