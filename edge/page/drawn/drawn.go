// Package drawn keeps drawn pages without the texts that belong to one answer alone, and fills those in: to
// execute a template takes twenty times as long.
//
// A page is drawn once for each key, with marks in the places of its own texts, and cut apart at them. The
// key covers everything else that the page shows: a caller that leaves something out of it shows one user
// another's page. A mark is 26 random letters and digits of this process, so that no text contains one by
// chance or on purpose.
package drawn

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"html/template"
	"sync"
)

// MaxOwn bounds the own texts of a page.
const MaxOwn = 32

// Pages are the kept pages of one kind. Its methods are safe for concurrent use.
type Pages[Key comparable] struct {
	limit int
	mark  []byte
	marks [MaxOwn]template.HTML

	mu    sync.Mutex
	pages map[Key][]piece
}

// piece is a part of a kept page: its text, and which own text follows; -1: none.
type piece struct {
	text []byte
	own  int
}

// New keeps at most that many pages. If there are more, keeping begins again.
func New[Key comparable](limit int) *Pages[Key] {
	p := &Pages[Key]{limit: limit, mark: []byte(rand.Text()), pages: map[Key][]piece{}}
	for i := range p.marks {
		p.marks[i] = template.HTML(fmt.Sprintf("%s%02d", p.mark, i)) //nolint:gosec // letters and digits
	}
	return p
}

// Draw returns the page of a key with its own texts, at most MaxOwn. If it is not kept yet, draw makes it
// with those texts instead, which have only letters and digits. Its error is draw's.
func (p *Pages[Key]) Draw(key Key, own []template.HTML,
	draw func(own []template.HTML) ([]byte, error)) ([]byte, error) {
	p.mu.Lock()
	page := p.pages[key]
	p.mu.Unlock()
	if page != nil {
		return fill(page, own), nil
	}
	marked, err := draw(p.marks[:len(own)])
	if err != nil {
		return nil, err
	}
	page = p.cut(marked)
	p.mu.Lock()
	if len(p.pages) >= p.limit {
		clear(p.pages)
	}
	p.pages[key] = page
	p.mu.Unlock()
	return fill(page, own), nil
}

// cut takes a page apart at its marks.
func (p *Pages[Key]) cut(page []byte) (pieces []piece) {
	for {
		text, rest, more := bytes.Cut(page, p.mark)
		if !more {
			return append(pieces, piece{text, -1})
		}
		pieces = append(pieces, piece{text, int(rest[0]-'0')*10 + int(rest[1]-'0')})
		page = rest[2:]
	}
}

func fill(pieces []piece, own []template.HTML) []byte {
	size := 0
	for _, p := range pieces {
		if size += len(p.text); p.own >= 0 {
			size += len(own[p.own])
		}
	}
	page := make([]byte, 0, size)
	for _, p := range pieces {
		if page = append(page, p.text...); p.own >= 0 {
			page = append(page, own[p.own]...)
		}
	}
	return page
}
