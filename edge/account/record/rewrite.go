package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"verifyd/natsconf"
)

// AccountRewritable refuses an account's record that holds members that this build does not know: rewritten
// from the known members, the rest would be gone. A newer build may add a member without another version, if
// readers can do without it. A change that removes a right is written all the same (KeepAccount): it cannot
// wait. The error is natsconf.ErrNewer.
func AccountRewritable(data []byte) error { return rewritable(data, new(accountRecord)) }

// KeyRewritable is AccountRewritable for a key's record.
func KeyRewritable(data []byte) error { return rewritable(data, new(keyRecord)) }

func rewritable(data []byte, known any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(known); err != nil {
		return fmt.Errorf("it holds more than this build can write again (%w): %w", err, natsconf.ErrNewer)
	}
	return nil
}

// KeepAccount returns an account's record as this build writes it, with the members of an older text of it
// that this build does not know. Within a part, only the known members are left: that is for changes that
// must not wait for a newer build.
func KeepAccount(older, written []byte) ([]byte, error) {
	return keeping("account", older, written, accountRecord{})
}

// KeepKey is KeepAccount for a key's record.
func KeepKey(older, written []byte) ([]byte, error) {
	return keeping("key", older, written, keyRecord{})
}

func keeping(what string, older, written []byte, known any) (data []byte, err error) {
	var all, now map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(older, &all), json.Unmarshal(written, &now)); err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(known)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(all, name)
	}
	maps.Copy(all, now)
	if data, err = json.Marshal(all); err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	return data, nil
}
