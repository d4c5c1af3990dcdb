package manage

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Member is a person in an account. Network and Subject are who it is. Calls about a member take both, or the
// ID as the subject and an empty network.
type Member struct {
	ID      string    `json:"id"` // mem_ and more; empty: the service is of a build without
	Network string    `json:"network"`
	Subject string    `json:"subject"`
	Name    string    `json:"name"`
	Email   string    `json:"email"`
	Role    string    `json:"role"` // owner, developer or viewer
	Since   time.Time `json:"since"`
}

// Invite is an open invitation into an account.
type Invite struct {
	ID        string    `json:"id"`
	Role      string    `json:"role"`
	For       string    `json:"for"` // whom it is meant for, for people to read
	By        string    `json:"by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Link is only in the answer that created it. A person who follows it and logs in becomes a member.
	Link string `json:"link"`
}

// People has the members and the open invites of an account.
type People struct {
	Members []Member `json:"members"`
	Invites []Invite `json:"invites"`
}

// memberPath returns a path below an account's, with who the member is.
func memberPath(account, below, network, subject string) string {
	who := url.Values{"network": {network}, "subject": {subject}}
	if network == "" {
		who = url.Values{"member": {subject}}
	}
	return accountPath(account) + below + "?" + who.Encode()
}

// Members lists the members and the open invites of an account.
func (c *Client) Members(ctx context.Context, account string) (p People, err error) {
	return p, c.service.Call(ctx, http.MethodGet, accountPath(account)+"/members", nil, &p)
}

// SetRole changes the role of a member. A repeat is harmless.
func (c *Client) SetRole(ctx context.Context, account, network, subject, role string) (p People, err error) {
	in := map[string]string{"role": role}
	return p, c.service.Call(ctx, http.MethodPatch, memberPath(account, "/members", network, subject), in, &p)
}

// RemoveMember takes a member out, with the invites that they have made.
func (c *Client) RemoveMember(ctx context.Context, account, network, subject string) (p People, err error) {
	return p, c.service.Call(ctx, http.MethodDelete, memberPath(account, "/members", network, subject), nil,
		&p)
}

// MoveMember takes a member out of one account and makes them one of another, whose people it returns. An
// empty role is the one that they had. A repeat is refused.
func (c *Client) MoveMember(ctx context.Context, from, to, network, subject, role string) (p People,
	err error) {
	in := map[string]string{"to": to}
	if role != "" {
		in["role"] = role
	}
	path := memberPath(from, "/members/move", network, subject)
	return p, c.service.Call(ctx, http.MethodPost, path, in, &p)
}

// LoginLink describes a login link into an account that was or can be used, without the link itself. They are
// created only at the command line of the service's machine.
type LoginLink struct {
	ID        string    `json:"id"`
	Role      string    `json:"role"`
	By        string    `json:"by"`
	CreatedAt time.Time `json:"created_at"`
	EndsAt    time.Time `json:"ends_at"` // when the last login that it may lead to ends
}

// LoginLinks lists the login links into an account.
func (c *Client) LoginLinks(ctx context.Context, account string) ([]LoginLink, error) {
	var list struct {
		Links []LoginLink `json:"login_links"`
	}
	err := c.service.Call(ctx, http.MethodGet, accountPath(account)+"/login-links", nil, &list)
	return list.Links, err
}

// CreateInvite invites somebody. It is tried again where no answer came; a second call makes another
// invite.
func (c *Client) CreateInvite(ctx context.Context, account, role, whom string) (i Invite, err error) {
	in := map[string]string{"role": role, "for": whom}
	return i, c.service.Create(ctx, accountPath(account)+"/invites", "", in, &i)
}

// WithdrawInvite takes an invite back, by its id.
func (c *Client) WithdrawInvite(ctx context.Context, account, invite string) (p People, err error) {
	path := accountPath(account) + "/invites/" + url.PathEscape(invite)
	return p, c.service.Call(ctx, http.MethodDelete, path, nil, &p)
}

// Network is an identity network as the process that answered has it.
type Network struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"` // what its identities are known by
	RedirectURI string `json:"redirect_uri"`
	Live        bool   `json:"live"`      // live sessions are completed by it,
	Test        bool   `json:"test"`      // or test ones
	Dashboard   bool   `json:"dashboard"` // it leads into the dashboard
	Available   bool   `json:"available"` // it could be reached lately
}

// Networks lists the identity networks.
func (c *Client) Networks(ctx context.Context) ([]Network, error) {
	var list struct {
		Networks []Network `json:"networks"`
	}
	err := c.service.Call(ctx, http.MethodGet, "/manage/networks", nil, &list)
	return list.Networks, err
}
