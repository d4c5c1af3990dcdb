package export

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

const (
	// pageWrite bounds how long a client may take to receive a page, and maxExport the whole: hundreds of
	// thousands of sessions for one that reads as fast as it can.
	pageWrite = 30 * time.Second
	maxExport = 30 * time.Minute
)

// ErrTooMany is returned by Answers.Write, wrapped with the reason, if as many exports are under way as may
// be.
var ErrTooMany = errors.New("too many exports at once")

// Answers writes exports as answers to requests. An export lasts for as long as its client reads, so it waits
// for its turn to read the next page, and takes no slot from anything while it writes. Its methods are safe
// for concurrent use.
type Answers struct{ open, pages *places.Places }

// NewAnswers returns one for a process.
func NewAnswers() *Answers {
	return &Answers{places.New(places.Pools.Exports), places.New(places.Pools.ExportPages)}
}

// Export is all sessions of a list, for a request.
type Export struct {
	Format Format
	Query  lists.Query
	List   func(context.Context, lists.Query) (lists.Page, error) // reads a page
	// May is asked before each page whether whoever asked may still have it; its error ends the export.
	May  func() error
	Who  places.Request // whose it is
	File string         // the name by which a browser stores it; empty: it shows it
}

// Write answers a request with an export. While nothing is written, it returns the error: ErrTooMany, or that
// of List or May. After that it closes the connection, also once the export has lasted too long, so that a
// partial list is not mistaken for a whole one.
func (a *Answers) Write(w http.ResponseWriter, r *http.Request, e Export) error {
	release, err := a.open.Acquire(e.Who)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), maxExport)
	defer cancel()
	var out *Writer
	control := http.NewResponseController(w)
	err = Pages(ctx, e.Query, a.inTurn(e), func(views []facts.View) (err error) {
		if err := e.May(); err != nil {
			return err
		}
		_ = control.SetWriteDeadline(time.Now().Add(pageWrite)) // the server's own is for a whole answer
		if out == nil {
			w.Header().Set("Content-Type", e.Format.MediaType())
			w.Header().Set("Cache-Control", "no-store")
			if e.File != "" {
				w.Header().Set("Content-Disposition", `attachment; filename="`+e.File+`"`)
			}
			out, err = NewWriter(w, e.Format)
		}
		if err == nil {
			err = out.Write(views)
		}
		return err
	})
	if err != nil && out != nil {
		web.EventFrom(r.Context()).Err = err
		panic(http.ErrAbortHandler)
	}
	return err
}

// inTurn reads an export's pages, each when it is its turn.
func (a *Answers) inTurn(e Export) func(context.Context, lists.Query) (lists.Page, error) {
	return func(ctx context.Context, q lists.Query) (lists.Page, error) {
		release, err := a.pages.Wait(ctx, e.Who)
		if err != nil {
			return lists.Page{}, err
		}
		defer release()
		return e.List(ctx, q)
	}
}
