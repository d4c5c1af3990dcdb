package problem

import (
	"net/http"
	"testing"
)

func TestEveryCodeHasItsRow(t *testing.T) {
	for code, row := range problems {
		if row.title == "" || http.StatusText(row.status) == "" || row.status < 400 {
			t.Errorf("%s: %+v", code, row)
		}
	}
}
