package secretbox

import (
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"verifyd/natsconf"
)

// Master is what the boxes and hashes of a store are derived from: its Ring, or a key that was never changed.
type Master interface {
	Box(use string) *Box
	Hash(use string) *Hash
}

// Ring is the master keys that a store has had, oldest first, up to the one that a process has.
//
// The law: a key opens what it has sealed, and the keys before it have. So the store holds, for each key that
// opens it, the ones before that key, sealed under it, and no key leads to a later one. A box begins with the
// number of its key. Hashes are the first key's permanently: their values are names, which nothing could find
// again under another key.
//
// While the key is changed, two open the store, and the older one seals. A process that has the newer one can
// open whatever is sealed next from its start on, so that all processes need not change at one instant.
type Ring struct {
	keys   []Key
	seals  atomic.Int32 // which key seals
	stored int          // how many keys open the store; 0: its key was never changed
	place  int          // of the last key among those
}

// ringVersion is the version of stored rings.
const ringVersion = 1

// maxKeys bounds a ring: a byte names the key of a box.
const maxKeys = 200

// ringUse is the use of the box that seals a ring under each key that opens it; ringOwner is its owner.
const (
	ringUse   = "ring"
	ringOwner = "verifyd master keys"
)

// ringRecord is a Ring as it is stored.
type ringRecord struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`    // of the last change
	Seals   int32     `json:"seals"` // which key seals, from 0
	// for each key that opens the store, the newest last: the keys up to it, sealed under it
	Opens [][]byte `json:"opens"`
}

// OtherKeyError is returned for a ring that a key does not open.
type OtherKeyError struct{ Changed time.Time }

func (e *OtherKeyError) Error() string {
	return "the store's master key was changed, last on " + e.Changed.UTC().Format(time.RFC3339) +
		", and this is not the key that opens it now"
}

// Ring returns the ring of a store whose master key was never changed.
func (k Key) Ring() *Ring { return &Ring{keys: []Key{k}} }

// OpenRing opens a stored ring. Its errors are an *OtherKeyError, natsconf.ErrNewer, and that of a record
// that cannot be read.
func (k Key) OpenRing(stored []byte) (*Ring, error) {
	var record ringRecord
	if err := natsconf.DecodeRecord(stored, &record, &record.Version, ringVersion); err != nil {
		return nil, fmt.Errorf("the master keys of the store: %w", err)
	}
	r := &Ring{stored: len(record.Opens)}
	for i, sealed := range record.Opens {
		plain, err := k.Box(ringUse).Open(sealed, ringOwner)
		if err != nil {
			continue
		}
		r.place = i
		for ; len(plain) >= KeyBytes; plain = plain[KeyBytes:] {
			r.keys = append(r.keys, Key(plain[:KeyBytes]))
		}
		if record.Seals < 0 || int(record.Seals) >= len(r.keys) {
			return nil, fmt.Errorf("the master keys of the store: key %d of %d", record.Seals, len(r.keys))
		}
		r.seals.Store(record.Seals)
		return r, nil
	}
	return nil, &OtherKeyError{Changed: record.At}
}

// Admit returns the ring, as it is stored, when another key opens the store next to this one. The error is
// that of a key that was changed too often.
func (r *Ring) Admit(next Key, at time.Time) ([]byte, error) {
	if len(r.keys) == maxKeys {
		return nil, fmt.Errorf("the master key was changed %d times, and cannot be changed again", maxKeys-1)
	}
	return encodeRing(at, r.seals.Load(), r.keys, slices.Concat(r.keys, []Key{next}))
}

// Alone returns the ring, as it is stored, when only its last key opens the store, and seals.
func (r *Ring) Alone(at time.Time) ([]byte, error) {
	return encodeRing(at, int32(len(r.keys)-1), r.keys) //nolint:gosec // maxKeys
}

func encodeRing(at time.Time, seals int32, opening ...[]Key) ([]byte, error) {
	record := ringRecord{Version: ringVersion, At: at.UTC().Truncate(time.Second), Seals: seals}
	for _, keys := range opening {
		var plain []byte
		for _, k := range keys {
			plain = append(plain, k[:]...)
		}
		record.Opens = append(record.Opens, keys[len(keys)-1].Box(ringUse).Seal(plain, ringOwner))
	}
	return json.Marshal(record)
}

// See takes from a stored ring which key seals from now on. That never goes back: a stored ring that is shown
// again must not have an earlier key seal again. A nil Ring sees nothing.
func (r *Ring) See(stored []byte) {
	if r == nil {
		return
	}
	newer, err := r.keys[len(r.keys)-1].OpenRing(stored)
	if err != nil || len(newer.keys) != len(r.keys) {
		return // a store without a ring, or this key opens nothing any more
	}
	for to := newer.seals.Load(); ; {
		if now := r.seals.Load(); to <= now || r.seals.CompareAndSwap(now, to) {
			return
		}
	}
}

// Seals returns the number of the key that seals, from 1.
func (r *Ring) Seals() int { return int(r.seals.Load()) + 1 }

// Changed reports whether there are earlier keys.
func (r *Ring) Changed() bool { return len(r.keys) > 1 }

// Waits reports whether an earlier key than the ring's last seals: the change to the last has not ended.
func (r *Ring) Waits() bool { return r.Seals() < len(r.keys) }

// Newest reports whether no later key than the ring's last opens the store.
func (r *Ring) Newest() bool { return r.place >= r.stored-1 }

// Box is Key.Box for the ring: it seals under the key that seals, and opens what any of the keys has sealed.
func (r *Ring) Box(use string) *Box {
	b := &Box{seals: &r.seals, aeads: make([]cipher.AEAD, 0, len(r.keys))}
	for _, k := range r.keys {
		b.aeads = append(b.aeads, k.Box(use).aeads...)
	}
	return b
}

// Hash is Key.Hash, of the first key.
func (r *Ring) Hash(use string) *Hash { return r.keys[0].Hash(use) }

// String keeps the keys out of logs and error texts.
func (*Ring) String() string { return "seal.Ring(hidden)" }

// GoString keeps them out of %#v as well.
func (*Ring) GoString() string { return "seal.Ring(hidden)" }
