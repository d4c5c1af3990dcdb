package edge

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/sessions"
)

const (
	// retryUnavailable is the Retry-After of answers while JetStream is away: a leader election takes a
	// second or two.
	retryUnavailable = 2 * time.Second
	// retryStoreFull is longer: room comes when sessions and results age out, or when an operator acts.
	retryStoreFull = time.Minute
)

// authorize finds out whose request it is (contract §5; RFC 6750 §2.1). An address that has failed too often
// gets a Retry-After instead of the reason; a key that is good is never refused for what others at its
// address do.
func (a *api) authorize(r *http.Request) (account.Principal, *problem) {
	who, p := a.identify(r)
	if p == nil || p.code != CodeKeyMissing && p.code != CodeKeyInvalid || a.FailedKeys == nil {
		return who, p
	}
	if d := a.FailedKeys.Fail(EventFrom(r.Context()).ClientIP, a.Now()); !d.Allowed {
		return who, &problem{
			code:       CodeTooManyFailedKeys,
			detail:     "Too many requests without a valid API key came from this address; mend the key first.",
			retryAfter: d.RetryAfter,
		}
	}
	return who, p
}

func (a *api) identify(r *http.Request) (account.Principal, *problem) {
	secret, detail := bearer(r.Header)
	if detail != "" {
		return account.Principal{}, &problem{code: CodeKeyMissing, detail: detail}
	}
	who, err := a.Keys.Lookup(secret)
	if err != nil {
		return account.Principal{}, keyProblem(err)
	}
	if who.Key.Test && !a.TestKeys {
		return account.Principal{}, &problem{
			code: CodeKeyInvalid, detail: "This is a test key, and test keys are switched off here (VERIFYD_TEST_KEYS); use a live key.",
		}
	}
	event := EventFrom(r.Context())
	event.Account, event.Key = who.Account.ID, who.Key.ID
	if a.Uses != nil {
		a.Uses.RecordUse(who.Key.ID, a.Now())
	}
	return who, nil
}

// bearer takes the key out of the header, or says what is wrong with the header.
func bearer(h http.Header) (secret, detail string) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", "Send the API key in the header Authorization: Bearer <API_KEY>."
	}
	if len(values) > 1 {
		return "", "There are several Authorization headers; send one."
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" { // RFC 9110 §11.1: schemes are case-insensitive
		return "", "The Authorization header must be: Bearer <API_KEY>."
	}
	return secret, ""
}

func keyProblem(err error) *problem {
	if expired, ok := errors.AsType[*account.ExpiredKeyError](err); ok {
		return &problem{code: CodeKeyInvalid, detail: expiryDetail(expired)}
	}
	switch {
	case errors.Is(err, account.ErrMalformedKey):
		return &problem{
			code: CodeKeyInvalid, detail: "This is not an API key of this service, or a character of it is missing or wrong.",
		}
	case errors.Is(err, account.ErrUnknownKey):
		return &problem{code: CodeKeyInvalid, detail: "This API key is not known here."}
	case errors.Is(err, account.ErrRevokedKey):
		return &problem{code: CodeKeyInvalid, detail: "This API key was revoked."}
	case errors.Is(err, account.ErrDisabled):
		return &problem{
			code:   CodeAccountDisabled,
			detail: "The operator of this service has disabled the account of this API key; the key works again once the account is enabled.",
		}
	default: // account.ErrNotReady, and whatever else keeps the service from knowing
		return &problem{
			code: CodeUnavailable, detail: "The API keys are not loaded yet.", retryAfter: retryUnavailable,
			cause: err,
		}
	}
}

func expiryDetail(e *account.ExpiredKeyError) string {
	if e.Rolled {
		return "This API key was replaced by another, and its grace ended on " + timestamp(e.At) + "."
	}
	return "This API key expired on " + timestamp(e.At) + "."
}

// storeProblem reports what becomes of an error of the store.
func storeProblem(err error) *problem {
	switch {
	case errors.Is(err, natsconf.ErrStoreFull):
		return storeFull(err)
	case errors.Is(err, natsconf.ErrUnavailable), errors.Is(err, natsconf.ErrUncertain),
		errors.Is(err, natsconf.ErrConflict),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem{
			code: CodeUnavailable, detail: "The service cannot reach its store; try again.",
			retryAfter: retryUnavailable, cause: err,
		}
	case errors.Is(err, sessions.ErrNewer): // while a newer build is rolled out: the next edge that is asked may be one
		return &problem{
			code: CodeUnavailable, detail: "The service is being upgraded; try again.",
			retryAfter: retryUnavailable, cause: err,
		}
	default:
		return &problem{
			code: CodeInternal, detail: "The service failed; its log has the reason under this request_id.",
			cause: err,
		}
	}
}

func storeFull(cause error) *problem {
	return &problem{
		code: CodeStoreFull, detail: "New sessions do not start until there is room; open ones go on.",
		retryAfter: retryStoreFull, cause: cause,
	}
}
