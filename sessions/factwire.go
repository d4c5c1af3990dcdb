package sessions

import (
	"encoding/json"
	"fmt"

	"verifyd/natsconf"
)

// claimRecord and its like are facts and hints as they are stored. The session id is in the subject.
type (
	claimRecord struct {
		Version int `json:"v"`
		Claim
	}
	resultRecord struct {
		Version int `json:"v"`
		Result
	}
	resendRecord struct {
		Version int `json:"v"`
		Resend
	}
	retryRecord struct {
		Version int `json:"v"`
		Retry
	}
)

func encodeClaim(c Claim) ([]byte, error)   { return json.Marshal(claimRecord{factVersion, c}) }
func encodeResult(r Result) ([]byte, error) { return json.Marshal(resultRecord{factVersion, r}) }
func encodeResend(r Resend) ([]byte, error) { return json.Marshal(resendRecord{factVersion, r}) }
func encodeRetry(r Retry) ([]byte, error)   { return json.Marshal(retryRecord{factVersion, r}) }

// The decoders of facts take the session and the number of the attempt from the subject. A fact repeats the number: a server's answer,
// which is a JSON object too, does not. Their errors are ErrNewer and ErrUnreadable.

func decodeClaim(id ID, n int, data []byte) (Claim, error) {
	var r claimRecord
	err := decodeFact(data, &r, &r.Version, n, &r.Number)
	r.Session = id
	return r.Claim, err
}

func decodeResult(id ID, n int, data []byte) (Result, error) {
	var r resultRecord
	err := decodeFact(data, &r, &r.Version, n, &r.Number)
	r.Session = id
	return r.Result, err
}

func decodeResend(id ID, n int, data []byte) (Resend, error) {
	var r resendRecord
	err := decodeFact(data, &r, &r.Version, n, &r.Number)
	r.Session = id
	return r.Resend, err
}

func decodeRetry(id ID, data []byte) (Retry, error) {
	var r retryRecord
	err := decodeVersioned(data, &r, &r.Version)
	if err == nil && r.Since.IsZero() {
		err = fmt.Errorf("it does not say since when: %w", ErrUnreadable)
	}
	r.Session = id
	return r.Retry, err
}

func decodeFact(data []byte, into any, version *int, n int, number *int) error {
	if err := decodeVersioned(data, into, version); err != nil {
		return err
	}
	if *number != n {
		return fmt.Errorf("it is about attempt %d, not %d: %w", *number, n, ErrUnreadable)
	}
	return nil
}

// decodeVersioned refuses a fact of a newer build rather than misread it: who cannot read a claim sends nothing.
func decodeVersioned(data []byte, into any, version *int) error {
	if err := json.Unmarshal(data, into); err != nil {
		return undecodable(data, factVersion, err)
	}
	return natsconf.CheckVersion(*version, factVersion)
}
