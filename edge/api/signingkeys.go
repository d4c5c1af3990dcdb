package api

import (
	"net/http"

	"verifyd/edge/web"
)

// signingKeysDoc lists the account's public keys whose signatures callbacks carry now, the current one first.
type signingKeysDoc struct {
	SigningKeys []signingKeyDoc `json:"signing_keys"`
}

type signingKeyDoc struct {
	PublicKey string  `json:"public_key"` // "whpk_…"
	From      string  `json:"from"`
	Until     *string `json:"until"` // null for the current one
}

// GET /signing-keys reports the public keys that callbacks of the key's account are checked with. It reads
// nothing from the store.
func (a *api) readSigningKeys(w http.ResponseWriter, r *http.Request) {
	who, p := a.authorize(r)
	if p != nil {
		web.WriteProblem(w, r, p)
		return
	}
	doc := signingKeysDoc{SigningKeys: []signingKeyDoc{}}
	for _, k := range a.Signing.Public(who.Account, a.Now()) {
		key := signingKeyDoc{PublicKey: k.Value, From: web.Timestamp(k.From)}
		if !k.Until.IsZero() {
			until := web.Timestamp(k.Until)
			key.Until = &until
		}
		doc.SigningKeys = append(doc.SigningKeys, key)
	}
	web.WriteJSON(w, http.StatusOK, "application/json", doc)
}
