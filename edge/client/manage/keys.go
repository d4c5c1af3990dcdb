package manage

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Key is an API key, never the key itself. What is nil is not set: the service's default counts.
type Key struct {
	ID          string     `json:"id"`
	Account     string     `json:"account"` // the account's id
	AccountName string     `json:"account_name"`
	Name        string     `json:"name"`
	Mode        string     `json:"mode"`       // live or test
	State       string     `json:"state"`      // active, rolled, expired or revoked
	Hint        string     `json:"hint"`       // its beginning and its last four characters
	RateLimit   *string    `json:"rate_limit"` // such as 5/s
	Policy      *string    `json:"policy"`     // once or at-least-once
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	RevokedAt   *time.Time `json:"revoked_at"`
	Replaces    *string    `json:"replaces"` // id of the key in whose place it was put
	ReplacedBy  *string    `json:"replaced_by"`
	LastUsedAt  *time.Time `json:"last_used_at"` // only in lists
}

// MadeKey is a key in the one answer that shows it.
type MadeKey struct {
	Key

	Secret string `json:"secret"`
	// Stored is false if the store did not confirm the change. The secret may work or not: keep it, and the
	// key that it was to replace, until Keys shows which does.
	Stored bool `json:"stored"`
}

// KeyOptions are what may be chosen for a key; the zero value takes the service's defaults and never ends.
type KeyOptions struct {
	Name      string     `json:"name,omitempty"`
	Mode      string     `json:"mode,omitempty"` // live, the default, or test
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RateLimit string     `json:"rate_limit,omitempty"` // such as 5/s
	Policy    string     `json:"policy,omitempty"`     // once or at-least-once
}

func keyPath(account, key string) string {
	return accountPath(account) + "/keys/" + url.PathEscape(key)
}

// CreateKey makes a key. It is tried again where no
// answer came; a second call makes another key.
func (c *Client) CreateKey(ctx context.Context, account string, o KeyOptions) (k MadeKey, err error) {
	return k, c.service.Create(ctx, accountPath(account)+"/keys", "", o, &k)
}

// RollKey puts a key in the place of another, which keeps working for the grace period. It is tried again
// if no answer came; a second call is refused with state_conflict.
func (c *Client) RollKey(ctx context.Context, account, key string, grace time.Duration) (k MadeKey,
	err error) {
	in := map[string]int64{"grace_seconds": int64(grace / time.Second)}
	return k, c.service.Create(ctx, keyPath(account, key)+"/roll", "", in, &k)
}

// RevokeKey ends a key permanently. A repeat is harmless.
func (c *Client) RevokeKey(ctx context.Context, account, key string) (k Key, err error) {
	return k, c.service.Call(ctx, http.MethodDelete, keyPath(account, key), nil, &k)
}

// Keys lists the keys of an account, or of all where it is empty, oldest first, page by page. It ends with
// the first error.
func (c *Client) Keys(ctx context.Context, account string) iter.Seq2[Key, error] {
	path := "/manage/keys"
	if account != "" {
		path = accountPath(account) + "/keys"
	}
	return func(yield func(Key, error) bool) {
		for query := (url.Values{"limit": {strconv.Itoa(maxPage)}}); ; {
			page, err := keysOn(ctx, c, path, query)
			if err != nil {
				yield(Key{}, err)
				return
			}
			for _, k := range page.Keys {
				if !yield(k, nil) {
					return
				}
			}
			if page.Next == nil {
				return
			}
			query.Set("cursor", *page.Next)
		}
	}
}

// KeyByID finds a key, whosever it is; nil if there is none.
func (c *Client) KeyByID(ctx context.Context, id string) (*Key, error) {
	page, err := keysOn(ctx, c, "/manage/keys", url.Values{"id": {id}})
	if err != nil || len(page.Keys) == 0 {
		return nil, err
	}
	return &page.Keys[0], nil
}

type keyPage struct {
	Keys []Key   `json:"keys"`
	Next *string `json:"next"`
}

func keysOn(ctx context.Context, c *Client, path string, query url.Values) (page keyPage, err error) {
	return page, c.service.Call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page)
}
