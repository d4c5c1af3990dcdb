package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/problem"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// confirmed is an answer of the service to one of many concurrent requests.
type confirmed struct {
	status    int
	Code      problem.Code
	TriesLeft *int `json:"tries_left"`
	State     sessions.State
	Reached   proof.Level
	Reason    sessions.Reason
}

// readConfirmed reads an answer, in any goroutine.
func readConfirmed(t *testing.T, a answer) confirmed {
	t.Helper()
	c := confirmed{status: a.status}
	if err := json.Unmarshal([]byte(a.body), &c); err != nil {
		t.Errorf("%d %s: %v", a.status, a.body, err)
	}
	return c
}

// atOnce sends concurrent requests, and returns their answers. A request that is answered with 503 is sent
// again, as the answer says.
func (s *service) atOnce(t *testing.T, send ...func() answer) []confirmed {
	t.Helper()
	got := make([]confirmed, len(send))
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range send {
		wg.Go(func() {
			<-begin
			a := send[i]()
			for a.status == http.StatusServiceUnavailable && t.Context().Err() == nil {
				a = send[i]()
			}
			got[i] = readConfirmed(t, a)
		})
	}
	close(begin)
	wg.Wait()
	return got
}

// gives returns a function that confirms a session with a code.
func (s *service) gives(t *testing.T, token, user, code string) func() answer {
	t.Helper()
	return func() answer {
		return s.confirm(t, token, acmeKey, fmt.Sprintf(`{"platform_user_id":%q,"code":%q}`, user, code))
	}
}

// stands returns the state of a session.
func (s *service) stands(t *testing.T, token string) confirmed {
	t.Helper()
	return readConfirmed(t, s.get(t, token, acmeKey))
}

// completions returns how many outcomes are stored.
func (s *service) completions(t *testing.T) uint64 {
	t.Helper()
	stream, err := s.conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// Of clients that send codes concurrently, those with the right one learn that the session is verified, each
// of them, and the others that their code is wrong or that it has ended; the outcome is stored once.
func TestConfirmationsRace(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for range 5 {
		token := s.asking(t, "code")
		code := s.signedIn(t, token)
		before := s.completions(t)
		send := []func() answer{
			s.gives(t, token, "u-1", code),
			s.gives(t, token, "u-1", strings.ToLower(code[:3]+"-"+code[3:])),
			s.gives(t, token, "u-1", code[:3]+" "+code[3:]),
		}
		right := len(send)
		for n := range proof.MaxTries - 2 {
			send = append(send, s.gives(t, token, "u-1", wrongCode(code, n)))
		}
		send = append(send, s.gives(t, token, "somebody else", code))
		for i, a := range s.atOnce(t, send...) {
			switch {
			case i < right && a.status == http.StatusOK && a.State == sessions.Verified &&
				a.Reached == proof.Code:
			case i >= right && a.Code == problem.CodeWrongCode && *a.TriesLeft > 0:
			case i >= right && a.Code == problem.CodeNothingToConfirm:
			default:
				t.Errorf("client %d of %d right ones: %+v", i, right, a)
			}
		}
		if a := s.stands(t, token); a.State != sessions.Verified || a.Reached != proof.Code {
			t.Errorf("it stands as %+v", a)
		}
		if n := s.completions(t) - before; n != 1 {
			t.Errorf("%d outcomes are stored", n)
		}
	}
}

// wrongCode returns a wrong code, another for each number.
func wrongCode(right string, n int) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	at := strings.IndexByte(alphabet, right[0])
	return string(alphabet[(at+1+n)%len(alphabet)]) + right[1:]
}

// If something else ends a session while it is confirmed, there is one outcome, and every answer agrees with
// it.
func TestConfirmationAgainstAnotherEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for range 5 {
		token := s.asking(t, "code")
		right := s.gives(t, token, "u-1", s.signedIn(t, token))
		take := func() answer { return s.cancel(t, token, acmeKey) }
		got := s.atOnce(t, right, take, right, take)
		stands := s.stands(t, token)
		for i, a := range got {
			wins, loses := stands.State == sessions.Verified, problem.CodeNothingToConfirm
			if i%2 == 1 {
				wins, loses = stands.State == sessions.Canceled, problem.CodeSessionCompleted
			}
			if wins && (a.status != http.StatusOK || a.State != stands.State) || !wins && a.Code != loses {
				t.Errorf("it is %s, and request %d is answered %+v", stands.State, i, a)
			}
		}
		if stands.State != sessions.Verified && stands.State != sessions.Canceled {
			t.Errorf("it stands as %+v", stands)
		}
	}
}

// A confirmation in time counts, and one after the expiry does not, however close.
func TestConfirmationAgainstTheExpiry(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for range 5 {
		token := s.asking(t, "code")
		right := s.gives(t, token, "u-1", s.signedIn(t, token))
		s.clock.advance(sessions.Lifetime - time.Second)
		expire := func() answer {
			s.clock.advance(time.Second)
			return s.get(t, token, acmeKey)
		}
		got := s.atOnce(t, right, expire, right, right)
		stands := s.stands(t, token)
		for _, a := range slices.Delete(got, 1, 2) {
			if a.status == http.StatusOK && stands.State != sessions.Verified ||
				a.status != http.StatusOK && a.Code != problem.CodeConfirmationExpired {
				t.Errorf("it is %s, and a confirmation is answered %+v", stands.State, a)
			}
		}
		late := readConfirmed(t, right())
		if stands.State == sessions.Verified && late.status != http.StatusOK ||
			stands.State == sessions.Expired && late.Code != problem.CodeConfirmationExpired {
			t.Errorf("it is %s, and the code afterwards is answered %+v", stands.State, late)
		}
	}
}

// A session that expires while its code is being judged is expired, however right the code is.
func TestExpiryWhileACodeIsJudged(t *testing.T) {
	var judging atomic.Pointer[clock]
	crashpoint.Hook(func(point string) {
		if c := judging.Load(); c != nil && point == crashpoint.AfterConfirm {
			c.advance(time.Second)
		}
	})
	t.Cleanup(func() { crashpoint.Hook(nil) })
	s := newService(t, nil)
	token := s.asking(t, "code")
	right := s.gives(t, token, "u-1", s.signedIn(t, token))
	s.clock.advance(sessions.Lifetime - time.Second)
	judging.Store(s.clock)
	wantProblem(t, right(), problem.CodeConfirmationExpired)
	if a := s.stands(t, token); a.State != sessions.Expired || a.Reached != proof.Link {
		t.Errorf("it stands as %+v", a)
	}
	if n := s.completions(t); n != 0 {
		t.Errorf("%d outcomes are stored", n)
	}
}

// A hundred clients that guess concurrently get five guesses together: each of these learns how many are
// left, all others that the session has ended, and the code is void.
func TestHundredClientsGuess(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	token := s.asking(t, "code")
	code := s.signedIn(t, token)
	var send []func() answer
	for n := range 100 { // none is right: the first three are refused, and all differ
		send = append(send, s.gives(t, token, "u-1", fmt.Sprintf("%s%03d", wrongCode(code, 0)[:3], n)))
	}
	left := map[int]int{}
	for i, a := range s.atOnce(t, send...) {
		switch a.Code {
		case problem.CodeWrongCode:
			left[*a.TriesLeft]++
		case problem.CodeNothingToConfirm:
		default:
			t.Errorf("client %d: %+v", i, a)
		}
	}
	for n := range proof.MaxTries {
		if left[n] != 1 {
			t.Errorf("clients by tries left: %v", left)
			break
		}
	}
	if len(left) != proof.MaxTries {
		t.Errorf("judged: %v", left)
	}
	wantProblem(t, s.gives(t, token, "u-1", code)(), problem.CodeNothingToConfirm)
	if a := s.stands(t, token); a.State != sessions.Failed || a.Reason != sessions.Unconfirmed ||
		a.Reached != proof.Link {
		t.Errorf("it stands as %+v", a)
	}
	id := sessions.ID(idOf(t, token))
	p, err := s.store.ProgressOf(t.Context(), sessions.Session{ID: id})
	if err != nil || len(p.Tried) != proof.MaxTries {
		t.Errorf("%d tries are stored, %v", len(p.Tried), err)
	}
	if n := s.completions(t); n != 1 {
		t.Errorf("%d outcomes are stored", n)
	}
	if strings.Contains(s.log.String(), code) {
		t.Error("the code is in the log")
	}
}
