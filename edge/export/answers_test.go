package export

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"verifyd/sessions/lists"
)

// An export ends, however slowly its client reads.
func TestExportsEnd(t *testing.T) {
	t.Parallel()
	var left time.Duration
	e := Export{
		Format: CSV, May: func() error { return nil }, Of: []string{"ada"},
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
