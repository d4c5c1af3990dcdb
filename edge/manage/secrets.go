package manage

import (
	"errors"
	"net/http"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/grant"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf"
)

// secretCalls are the operations on callback signing secrets.
type secretCalls struct{ *Handler }

func (h secretCalls) operations() []operation {
	return []operation{
		{http.MethodGet, pathSecrets, "manage_secrets", grant.AccountsRead, false, h.listSecrets},
		{http.MethodPost, pathSecrets, "manage_secret_rotate", grant.SecretsWrite, true, h.rotateSecret},
		{http.MethodDelete, pathPrevious, "manage_rotation_end", grant.SecretsWrite, false, h.endRotation},
	}
}

// secretDoc is a signing secret in an answer, never the secret. The previous one has an end.
type secretDoc struct {
	CreatedAt string  `json:"created_at"`
	EndsAt    *string `json:"ends_at"`
	PublicKey string  `json:"public_key"` // of the signature alongside the secret's
}

// madeSecretDoc is a signing secret in the answer that created it.
type madeSecretDoc struct {
	secretDoc

	PreviousEndsAt *string `json:"previous_ends_at"` // null: the previous one no longer signs
	Secret         string  `json:"secret"`
	// Stored is false if the store did not confirm the change.
	Stored bool `json:"stored"`
}

// secretList is what signs an account's callbacks now, the current secret first. There are two at most.
type secretList struct {
	Secrets []secretDoc `json:"secrets"`
}

func (h secretCalls) secretsOf(a account.Account) []secretDoc {
	docs := []secretDoc{}
	for _, p := range h.Accounts.PublicKeys(a) {
		docs = append(docs, secretDoc{web.Timestamp(p.From), stampOrNull(p.Until), p.Value})
	}
	return docs
}

func (h secretCalls) secrets(a account.Account, err error) (answer, *problem.Problem) {
	if err != nil {
		return answer{}, refusal(err)
	}
	return answer{status: http.StatusOK, doc: secretList{h.secretsOf(a)}}, nil
}

// GET /manage/accounts/{account}/secrets lists what signs the account's callbacks, without the secrets.
func (h secretCalls) listSecrets(c call) (answer, *problem.Problem) {
	return h.secrets(h.Accounts.Account(c.ctx(), c.account()))
}

// standardOverlap is how long the old secret signs too if the request does not set it, as for the command.
const standardOverlap = 24 * time.Hour

// POST /manage/accounts/{account}/secrets replaces the current signing secret, and shows the new one only
// this once. If the store did not confirm it, it is shown anyway: it may be the one that signs.
func (h secretCalls) rotateSecret(c call) (answer, *problem.Problem) {
	overlap, p := c.span("overlap_seconds", standardOverlap)
	if p != nil {
		return answer{}, p
	}
	a, err := h.Accounts.RotateSecret(c.ctx(), c.by, c.account(), overlap)
	unsure := errors.Is(err, natsconf.ErrUncertain) && len(a.Secrets) > 0
	if err != nil && !unsure {
		return answer{}, refusal(err)
	}
	docs := h.secretsOf(a)
	doc := madeSecretDoc{secretDoc: docs[0], Secret: a.Secrets[0].Value, Stored: !unsure}
	if len(docs) > 1 {
		doc.PreviousEndsAt = docs[1].EndsAt
	}
	if unsure {
		return answer{status: http.StatusAccepted, doc: doc}, nil
	}
	return answer{status: http.StatusCreated, doc: doc}, nil
}

// span reads a body of one member, a number of whole seconds that may be left out.
func (c call) span(name string, standard time.Duration) (time.Duration, *problem.Problem) {
	m, p := c.body(name)
	if p != nil {
		return 0, p
	}
	if seconds, given := m.Int(name); given {
		standard = time.Duration(min(max(seconds, -1), maxSeconds)) * time.Second
	}
	return standard, m.Problem()
}

// DELETE /manage/accounts/{account}/secrets/previous ends a rotation: the old secret no longer signs.
func (h secretCalls) endRotation(c call) (answer, *problem.Problem) {
	return h.secrets(h.Accounts.EndRotation(c.ctx(), c.by, c.account()))
}
