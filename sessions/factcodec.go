package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

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
		// of version 2: an answer, sealed, in place of the members of Result
		Sealed []byte `json:"said,omitempty"`
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

func encodeClaim(c Claim) ([]byte, error) { return encodeRecord(claimRecord{factVersions.newest, c}) }
func encodeResend(r Resend) ([]byte, error) {
	return encodeRecord(resendRecord{factVersions.newest, r})
}
func encodeRetry(r Retry) ([]byte, error) { return encodeRecord(retryRecord{factVersions.newest, r}) }

// receiverDetails is what a receiver answered, and its address: the answer may name the user, and so may a
// callback URL's host.
type receiverDetails struct {
	Detail  string `json:"d,omitempty"`
	Address string `json:"a,omitempty"`
	Answer  string `json:"b,omitempty"`
}

// encodeResult seals what the receiver answered where the result is of a session that has a key of its own.
func encodeResult(r Result, with sealer) ([]byte, error) {
	rec := resultRecord{Version: factVersions.newest, Result: r}
	if r.key != (keyRef{}) {
		sealed, err := with.sealDetails(r.Session, receiverDetails{r.Detail, r.Address, r.Answer})
		if err != nil {
			return nil, err
		}
		rec.Version, rec.Sealed = resultVersions.newest, sealed
		rec.Detail, rec.Address, rec.Answer = "", "", ""
	}
	return encodeRecord(rec)
}

func (s sealer) sealDetails(id ID, a receiverDetails) ([]byte, error) {
	plain, err := encodeRecord(a)
	if err != nil {
		return nil, err
	}
	return s.key.OwnBox().Seal(plain, detailsUse+string(id)), nil
}

// openDetails opens what a receiver answered, and its address. What cannot be opened is returned empty: no
// decision depends on it. The error is natsconf.ErrUnavailable.
func (st *Store) openDetails(ctx context.Context, id ID, ref keyRef, sealed string) (a receiverDetails,
	err error) {
	if sealed == "" || ref == (keyRef{}) {
		return a, nil
	}
	with, err := st.sealer(ctx, ref)
	if errors.Is(err, natsconf.ErrUnavailable) {
		return a, err
	}
	plain, oerr := with.key.OwnBox().Open([]byte(sealed), detailsUse+string(id))
	if err != nil || oerr != nil || decodeSealed(plain, &a) != nil {
		return receiverDetails{}, nil //nolint:nilerr // see above
	}
	return a, nil
}

// openResults opens what receivers answered in a session's attempts. The error is natsconf.ErrUnavailable.
func (st *Store) openResults(ctx context.Context, s Session, attempts []Attempt) error {
	for _, a := range attempts {
		if a.Result == nil {
			continue
		}
		if err := st.openResult(ctx, s.key, a.Result); err != nil {
			return err
		}
	}
	return nil
}

// openResult is openResults for one result.
func (st *Store) openResult(ctx context.Context, ref keyRef, r *Result) error {
	if r.sealed == "" {
		return nil
	}
	a, err := st.openDetails(ctx, r.Session, ref, r.sealed)
	if err == nil {
		r.Detail, r.Address, r.Answer, r.sealed = a.Detail, a.Address, a.Answer, ""
	}
	return err
}

// The decoders of facts take the session and the number of the attempt from the subject. A fact repeats the
// number: a server's answer, which is a JSON object too, does not. Their errors are ErrNewer and
// ErrUnreadable.

func decodeClaim(id ID, n int, data []byte) (Claim, error) {
	var r claimRecord
	err := decodeFact(data, &r, &r.Version, factVersions, n, &r.Number)
	r.Session = id
	return r.Claim, err
}

func decodeResult(id ID, n int, data []byte) (Result, error) {
	var r resultRecord
	err := decodeFact(data, &r, &r.Version, resultVersions, n, &r.Number)
	r.Session, r.sealed = id, string(r.Sealed)
	return r.Result, err
}

func decodeResend(id ID, n int, data []byte) (Resend, error) {
	var r resendRecord
	err := decodeFact(data, &r, &r.Version, factVersions, n, &r.Number)
	r.Session = id
	return r.Resend, err
}

func decodeRetry(id ID, data []byte) (Retry, error) {
	var r retryRecord
	err := decodeRecord(data, &r, &r.Version, factVersions)
	if err == nil && r.Since.IsZero() {
		err = fmt.Errorf("it does not say since when: %w", ErrUnreadable)
	}
	r.Session = id
	return r.Retry, err
}

func decodeFact(data []byte, into any, version *int, v versions, n int, number *int) error {
	if err := decodeRecord(data, into, version, v); err != nil {
		return err
	}
	if *number != n {
		return fmt.Errorf("it is about attempt %d, not %d: %w", *number, n, ErrUnreadable)
	}
	return nil
}

// decodeVerdict reads the verdict alone, also of a newer build's result; empty where there is none.
func decodeVerdict(data []byte) Verdict {
	var r struct {
		Verdict Verdict `json:"verdict"`
	}
	if json.Unmarshal(data, &r) != nil {
		return ""
	}
	return r.Verdict
}
