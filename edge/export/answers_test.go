package export

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/edge/places"
	"verifyd/sessions/lists"
)

// An export ends, however slowly its client reads.
func TestExportsEnd(t *testing.T) {
	t.Parallel()
	var left time.Duration
	e := Export{
		Format: CSV, May: func() error { return nil }, Who: places.Request{Of: "ada"},
		List: func(ctx context.Context, _ lists.Query) (lists.Page, error) {
			if end, ok := ctx.Deadline(); ok {
				left = time.Until(end)
			}
			return lists.Page{}, nil
		},
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sessions", nil)
	if err := NewAnswers().Write(httptest.NewRecorder(), r, e); err != nil {
		t.Fatal(err)
	}
	if left <= 0 || left > maxExport {
		t.Errorf("an export has %s, want %s at most", left, maxExport)
	}
}

// Exports take turns in reading pages: as many at once as may be, and the others in the order in which they
// came.
func TestPagesAreReadInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers, most := NewAnswers(), places.Pools.ExportPages.Size
		var begun atomic.Int32
		goOn := make(chan struct{})
		var all sync.WaitGroup
		for i := range 2 * most {
			all.Go(func() {
				err := answers.Write(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(),
					http.MethodGet, "/sessions", nil), Export{
					Format: CSV, May: func() error { return nil }, Who: places.Request{Of: strconv.Itoa(i)},
					List: func(context.Context, lists.Query) (lists.Page, error) {
						begun.Add(1)
						<-goOn
						return lists.Page{}, nil
					},
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for i := range most + 1 {
			if synctest.Wait(); int(begun.Load()) != most+i {
				t.Errorf("%d pages are read, want %d", begun.Load(), most+i)
			}
			if i < most {
				goOn <- struct{}{}
			}
		}
		close(goOn)
		all.Wait()
	})
}
