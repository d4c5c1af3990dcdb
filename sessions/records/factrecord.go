package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// claimRecord and the types like it are facts and hints as they are stored. The session id is in the subject.
type (
	claimRecord struct {
		Version int `json:"v"`
		facts.Claim
	}
	resultRecord struct {
		Version int `json:"v"`
		facts.Result
		// of version 2: an answer, sealed, in place of the members of Result
		Sealed []byte `json:"said,omitempty"`
	}
	resendRecord struct {
		Version int `json:"v"`
		facts.Resend
	}
	retryRecord struct {
		Version int `json:"v"`
		facts.Retry
	}
)

// EncodeClaim makes the record of a claim.
func EncodeClaim(c facts.Claim) ([]byte, error) {
	return EncodeRecord(claimRecord{factVersions.Newest, c})
}

// encodeResend makes the record of a resend.
func encodeResend(r facts.Resend) ([]byte, error) {
	return EncodeRecord(resendRecord{factVersions.Newest, r})
}

func encodeRetry(r facts.Retry) ([]byte, error) {
	return EncodeRecord(retryRecord{factVersions.Newest, r})
}

// receiverDetails is what a receiver answered, and its address: the answer may name the user, and so may a
// callback URL's host.
type receiverDetails struct {
	Detail  string `json:"d,omitempty"`
	Address string `json:"a,omitempty"`
	Answer  string `json:"b,omitempty"`
}

// EncodeResult makes the record of a result. It seals the receiver's answer if the session of the result has
// a key of its own.
func EncodeResult(r facts.Result, with Sealer) ([]byte, error) {
	rec := resultRecord{Version: factVersions.Newest, Result: r}
	if r.SealedUnder != (sessions.KeyRef{}) {
		sealed, err := with.sealDetails(r.Session, receiverDetails{r.Detail, r.Address, r.Answer})
		if err != nil {
			return nil, err
		}
		rec.Version, rec.Sealed = resultVersions.Newest, sealed
		rec.Detail, rec.Address, rec.Answer = "", "", ""
	}
	return EncodeRecord(rec)
}

func (s Sealer) sealDetails(id sessions.ID, a receiverDetails) ([]byte, error) {
	plain, err := EncodeRecord(a)
	if err != nil {
		return nil, err
	}
	return s.key.OwnBox().Seal(plain, detailsUse+string(id)), nil
}

// openDetails opens a receiver's answer, and its address. If they cannot be opened, they are returned empty:
// no decision depends on them. The error is natsconf.ErrUnavailable.
func (st *Opener) openDetails(ctx context.Context, id sessions.ID, ref sessions.KeyRef,
	sealed string) (a receiverDetails,
	err error) {
	if sealed == "" || ref == (sessions.KeyRef{}) {
		return a, nil
	}
	with, err := st.SealerOf(ctx, ref)
	if errors.Is(err, natsconf.ErrUnavailable) {
		return a, err
	}
	plain, oerr := with.key.OwnBox().Open([]byte(sealed), detailsUse+string(id))
	if err != nil || oerr != nil || decodeSealed(plain, &a) != nil {
		return receiverDetails{}, nil //nolint:nilerr // see above
	}
	return a, nil
}

// OpenResults opens the receivers' answers in a session's attempts. The error is natsconf.ErrUnavailable.
func (st *Opener) OpenResults(ctx context.Context, s sessions.Session, attempts []facts.Attempt) error {
	for _, a := range attempts {
		if a.Result == nil {
			continue
		}
		if err := st.openResult(ctx, s.SealedUnder, a.Result); err != nil {
			return err
		}
	}
	return nil
}

// openResult is OpenResults for one result.
func (st *Opener) openResult(ctx context.Context, ref sessions.KeyRef, r *facts.Result) error {
	if r.SealedDetails == "" {
		return nil
	}
	a, err := st.openDetails(ctx, r.Session, ref, r.SealedDetails)
	if err == nil {
		r.Detail, r.Address, r.Answer, r.SealedDetails = a.Detail, a.Address, a.Answer, ""
	}
	return err
}

// The decoders of facts take the session and the number of the attempt from the subject. A fact repeats the
// number: a server's answer, which is a JSON object too, does not. Their errors are ErrNewer and
// ErrUnreadable.

// DecodeClaim reads a claim.
func DecodeClaim(id sessions.ID, n int, data []byte) (facts.Claim, error) {
	var r claimRecord
	err := decodeFact(data, &r, &r.Version, factVersions, n, &r.Number)
	r.Session = id
	return r.Claim, err
}

// DecodeResult reads a result; the receiver's answer stays sealed.
func DecodeResult(id sessions.ID, n int, data []byte) (facts.Result, error) {
	var r resultRecord
	err := decodeFact(data, &r, &r.Version, resultVersions, n, &r.Number)
	r.Session, r.SealedDetails = id, string(r.Sealed)
	return r.Result, err
}

// DecodeResend reads a resend.
func DecodeResend(id sessions.ID, n int, data []byte) (facts.Resend, error) {
	var r resendRecord
	err := decodeFact(data, &r, &r.Version, factVersions, n, &r.Number)
	r.Session = id
	return r.Resend, err
}

// factDecoder reads a fact that was stored at an instant. With ErrUnreadable it returns what that stands for.
type factDecoder[F any] func(k facts.Key, data []byte, stored time.Time) (*F, error)

func claimIn(k facts.Key, data []byte, stored time.Time) (*facts.Claim, error) {
	c, err := DecodeClaim(k.ID, k.N, data)
	if errors.Is(err, facts.ErrUnreadable) {
		c = facts.UnreadableClaim(k.ID, k.N, toInstant(stored))
	}
	c = c.Dated(stored)
	return &c, err
}

func resultIn(k facts.Key, data []byte, stored time.Time) (*facts.Result, error) {
	r, err := DecodeResult(k.ID, k.N, data)
	if errors.Is(err, facts.ErrUnreadable) {
		r = facts.UnreadableResult(k.ID, k.N, toInstant(stored))
	}
	return &r, err
}

func resendIn(k facts.Key, data []byte, _ time.Time) (*facts.Resend, error) {
	r, err := DecodeResend(k.ID, k.N, data)
	if err != nil {
		return nil, err // nobody has requested it
	}
	return &r, nil
}

func decodeRetry(id sessions.ID, data []byte) (facts.Retry, error) {
	var r retryRecord
	err := DecodeRecord(data, &r, &r.Version, factVersions)
	if err == nil && r.Since.IsZero() {
		err = fmt.Errorf("it does not say since when: %w", facts.ErrUnreadable)
	}
	r.Session = id
	return r.Retry, err
}

func decodeFact(data []byte, into any, version *int, v versions, n int, number *int) error {
	if err := DecodeRecord(data, into, version, v); err != nil {
		return err
	}
	if *number != n {
		return fmt.Errorf("it is about attempt %d, not %d: %w", *number, n, facts.ErrUnreadable)
	}
	return nil
}

// DecodeVerdict reads the verdict alone, also that of a newer build's result; empty if there is none.
func DecodeVerdict(data []byte) facts.Verdict {
	var r struct {
		Verdict facts.Verdict `json:"verdict"`
	}
	if json.Unmarshal(data, &r) != nil {
		return ""
	}
	return r.Verdict
}
