package command

import (
	"context"
	"errors"
	"slices"
	"time"

	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// stored is a Manager on the store.
type stored struct {
	storedKeys
	storedMembers

	s    *accountstore.Store
	conn *natsconf.Conn
}

func newStored(st *store.Store) stored {
	s := st.Accounts
	return stored{storedKeys{s}, storedMembers{s}, s, st.Conn}
}

func (m stored) Show(ctx context.Context, name string) (shown Shown, err error) {
	if shown.Account, err = m.s.AccountByName(ctx, name); err != nil {
		return shown, err
	}
	shown.PublicKeys = m.s.PublicKeys(shown.Account)
	shown.Invites = m.s.OpenInvites(ctx, shown.Account)
	if shown.NoticeURL != "" {
		shown.NoticeHost = timeline.URLHost(shown.NoticeURL)
	}
	keys, err := m.Keys(ctx)
	shown.Keys = slices.DeleteFunc(keys, func(k ListedKey) bool { return k.Account != shown.ID })
	links, lerr := m.s.LoginLinks(ctx, shown.ID)
	shown.Links = links
	return shown, errors.Join(err, lerr)
}

func (m stored) Audit(ctx context.Context, name, cursor string, limit int) (records []Record, next string,
	err error) {
	a, err := m.s.Deleted(ctx, name)
	if errors.Is(err, account.ErrNoAccount) {
		a, err = m.s.AccountByName(ctx, name)
	}
	if err != nil {
		return nil, "", BadInput(err)
	}
	return AuditOf(ctx, m.s, a.ID, cursor, limit)
}

// AuditOf returns the newest records of a log from a cursor on, as a Manager does; the log is an account's id
// or audit.ServiceLog.
func AuditOf(ctx context.Context, s *accountstore.Store, log, cursor string, limit int) (records []Record,
	next string, err error) {
	page, err := s.Audit(ctx, log, cursor, limit)
	for _, r := range page.Records {
		records = append(records, Record{r.At, ActorText(r.Who), r.What, r.On, r.Detail})
	}
	return records, page.Next, err
}

func (m stored) Own(ctx context.Context, name string) (account.Account, error) {
	return OwnAccount(ctx, m.s, name)
}

func (m stored) List(ctx context.Context) ([]Listed, error) {
	accounts, aerr := m.s.Accounts(ctx)
	keys, kerr := m.s.Keys(ctx)
	err := errors.Join(aerr, kerr)
	if Lists(err) != nil {
		return nil, err
	}
	now, active := time.Now(), map[string]int{}
	for _, k := range keys {
		if st := k.State(now); st == account.KeyActive || st == account.KeyRolled {
			active[k.Account]++
		}
	}
	all := make([]Listed, len(accounts))
	for i, a := range accounts {
		all[i] = Listed{a, len(a.Members), active[a.ID]}
	}
	return all, err
}

func (m stored) Create(ctx context.Context, name string, grantName bool) (account.Account, error) {
	if grantName {
		return m.s.GrantAccount(ctx, Operator(), name)
	}
	if err := m.learnNames(ctx); err != nil {
		return account.Account{}, err
	}
	return m.s.CreateAccount(ctx, Operator(), name)
}

func (m stored) Rename(ctx context.Context, id, name string, grantName bool) (account.Account, error) {
	if err := m.learnNames(ctx); err != nil {
		return account.Account{}, err
	}
	return m.s.RenameAccount(ctx, Operator(), id, name, grantName)
}

// learnNames asks the edges that run for the service's own names, which a command does not have among its
// settings, so that a name is judged here as it is there. Its error is natsconf.ErrUnavailable.
func (m stored) learnNames(ctx context.Context) error {
	all, err := fleet.Ask(ctx, m.conn)
	var names []string
	for _, p := range all {
		names = append(names, p.Names...)
	}
	m.s.OwnNames(names)
	return err
}

func (m stored) SetVerified(ctx context.Context, id, name string, verified bool) error {
	_, err := m.s.SetVerified(ctx, Operator(), id, name, verified)
	return err
}

func (m stored) SetQuota(ctx context.Context, id string, quota int64) error {
	return m.s.SetQuota(ctx, Operator(), id, quota)
}

func (m stored) SetBinding(ctx context.Context, id string, to accountstore.Binding) error {
	return m.s.SetBinding(ctx, Operator(), id, to)
}

func (m stored) SetReturnURL(ctx context.Context, id, to string) error {
	return m.s.SetReturnURL(ctx, Operator(), id, to)
}

func (m stored) SetColour(ctx context.Context, id, colour string) error {
	return m.s.SetColour(ctx, Operator(), id, colour)
}

func (m stored) SetNoticeURL(ctx context.Context, id string, to urlpolicy.URL) error {
	return m.s.SetNoticeURL(ctx, Operator(), id, to)
}

func (m stored) Disable(ctx context.Context, id, reason string) error {
	_, err := m.s.Disable(ctx, Operator(), id, reason)
	return err
}

func (m stored) Enable(ctx context.Context, id string) (account.Account, error) {
	return m.s.Enable(ctx, Operator(), id)
}

func (m stored) AskDeletion(ctx context.Context, id string) (account.Account, error) {
	return m.s.AskDeletion(ctx, Operator(), id)
}

func (m stored) Restore(ctx context.Context, id string) (account.Account, error) {
	return m.s.Restore(ctx, Operator(), id)
}
