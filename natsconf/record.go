package natsconf

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNewer is returned for a record that a newer build has written. It is neither misread nor replaced; that
// build reads it.
var ErrNewer = errors.New("it was written by a newer build: run the newer verifyd")

// DecodeRecord reads a record that carries its version, of which this build reads 1 to newest; version is the
// place of it in into. For a newer version the error is ErrNewer, whatever the record's shape; a record
// without a version is refused.
func DecodeRecord(data []byte, into any, version *int, newest int) error {
	if err := json.Unmarshal(data, into); err != nil {
		if newer := CheckNewer(data, newest); newer != nil {
			return newer
		}
		return fmt.Errorf("decode: %w", err)
	}
	if *version < 1 {
		return fmt.Errorf("version %d, which no build writes", *version)
	}
	return CheckVersion(*version, newest)
}

// CheckNewer is for data that does not have the shape that this build knows: it returns ErrNewer if its
// version shows that a newer build may have written it, and nil otherwise.
func CheckNewer(data []byte, newest int) error {
	var r struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(data, &r) == nil {
		return CheckVersion(r.Version, newest)
	}
	return nil
}

// CheckVersion returns ErrNewer for a version that this build does not read.
func CheckVersion(version, newest int) error {
	if version > newest {
		return fmt.Errorf("version %d, this build reads %d: %w", version, newest, ErrNewer)
	}
	return nil
}
