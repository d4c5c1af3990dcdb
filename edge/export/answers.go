package export

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"verifyd/edge/limit"
	"verifyd/edge/web"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
)

const (
	// maxOpen bounds the exports that one process writes at once, each with a page of some hundred kilobytes
	// in memory, and maxOpenEach those of one owner and of one person.
	maxOpen     = 200
	maxOpenEach = 4
	// maxReading bounds the pages of exports that are read from the store at once, in competition with all
	// else that is read there.
	maxReading = 8
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
type Answers struct {
	open  *limit.Places
	turns chan struct{} // those who wait get it in the order in which they came
}

// NewAnswers returns one for a process.
func NewAnswers() *Answers {
	return &Answers{limit.NewPlaces(maxOpen), make(chan struct{}, maxReading)}
}

// Export is all sessions of a list, for a request.
type Export struct {
	Format Format
	Query  lists.Query
	List   func(context.Context, lists.Query) (lists.Page, error) // reads a page
	// May is asked before each page whether whoever asked may still have it; its error ends the export.
	May  func() error
	Of   []string // who they are: the ids of an account and of a person
	File string   // the name by which a browser stores it; empty: it shows it
}

// Write answers a request with an export. While nothing is written, it returns the error: ErrTooMany, or that
// of List or May. After that it closes the connection, also once the export has lasted too long, so that a
// partial list is not mistaken for a whole one.
func (a *Answers) Write(w http.ResponseWriter, r *http.Request, e Export) error {
	shares := make([]limit.Share, len(e.Of))
	for i, id := range e.Of {
		shares[i] = limit.Share{Of: id, Max: maxOpenEach}
	}
	release, err := a.open.Acquire(shares...)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), maxExport)
	defer cancel()
	var out *Writer
	control := http.NewResponseController(w)
	err = Pages(ctx, e.Query, a.inTurn(e.List), func(views []facts.View) (err error) {
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

// inTurn reads pages, each when a turn is free.
func (a *Answers) inTurn(list func(context.Context, lists.Query) (lists.Page, error)) func(context.Context,
	lists.Query) (lists.Page, error) {
	return func(ctx context.Context, q lists.Query) (lists.Page, error) {
		select {
		case a.turns <- struct{}{}:
			defer func() { <-a.turns }()
			return list(ctx, q)
		case <-ctx.Done():
			return lists.Page{}, ctx.Err()
		}
	}
}
