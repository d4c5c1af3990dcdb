package request

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"verifyd/edge/problem"
	"verifyd/edge/web"
)

// Body reads a body that is declared as plain JSON.
func Body(r *http.Request) ([]byte, *problem.Problem) {
	if r.ContentLength > web.MaxBodyBytes {
		return nil, tooLarge()
	}
	if p := checkMedia(r.Header); p != nil {
		return nil, p
	}
	body, err := readWhole(r) // bounded by the middleware around every route
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &large):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &problem.Problem{
			Code:   problem.CodeRequestTimeout,
			Detail: "The body was too slow to arrive; send it at once with the header.",
		}
	default:
		return nil, &problem.Problem{Code: problem.CodeInvalidRequest,
			Detail: "The body ended before its announced length.",
			Faults: []problem.Fault{
				{Code: problem.FaultSyntax, Detail: "the body ends before its announced length"},
			}}
	}
}

// readWhole reads a body of known length into a buffer of that size.
func readWhole(r *http.Request) ([]byte, error) {
	if r.ContentLength <= 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, err
	}
	return body, nil
}

func tooLarge() *problem.Problem {
	return &problem.Problem{Code: problem.CodeBodyTooLarge,
		Detail: fmt.Sprintf("A body has at most %d bytes.", web.MaxBodyBytes)}
}

// checkMedia accepts application/json, with no parameter but charset=utf-8, in no encoding but identity. RFC
// 8259 has no other charset, and a body that has to be decompressed first would bypass its size limit.
func checkMedia(h http.Header) *problem.Problem {
	for _, coding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return &problem.Problem{
				Code:   problem.CodeUnsupportedMedia,
				Detail: "Content-Encoding must be absent; send the body as it is.",
			}
		}
	}
	types := h.Values("Content-Type")
	if len(types) == 1 {
		media, params, err := mime.ParseMediaType(types[0])
		charset, given := params["charset"]
		if err == nil && media == "application/json" &&
			(len(params) == 0 || len(params) == 1 && given && strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &problem.Problem{
		Code:   problem.CodeUnsupportedMedia,
		Detail: "Content-Type must be application/json; the only parameter may be charset=utf-8.",
	}
}
