package page

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"verifyd/edge/origin"
)

const formMedia = "application/x-www-form-urlencoded"

// ReadForm reads a body of at most maxBytes into r.PostForm and returns the status to refuse it with, or 0.
func ReadForm(w http.ResponseWriter, r *http.Request, maxBytes int64) (status int) {
	// Scripts on other sites can send the other two encodings of a form, and none at all, without asking.
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != formMedia {
		return http.StatusUnsupportedMediaType
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
	var large *http.MaxBytesError
	switch err := r.ParseForm(); {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case err != nil:
		return http.StatusBadRequest
	}
	return 0
}

// ReadUpload is ReadForm for a form with files. All of it is held in memory. The caller has checked that no
// other site caused it: scripts there can send this encoding without asking.
func ReadUpload(w http.ResponseWriter, r *http.Request, maxBytes int64) (status int) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return http.StatusUnsupportedMediaType
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
	var large *http.MaxBytesError
	switch err := r.ParseMultipartForm(maxBytes); { //nolint:gosec // bounded above
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case err != nil:
		return http.StatusBadRequest
	}
	return 0
}

// FieldBytes returns how large the fields of a form with files are together, without the files.
func FieldBytes(r *http.Request) (n int64) {
	for name, values := range r.PostForm {
		for _, v := range values {
			n += int64(len(name) + len(v))
		}
	}
	return n
}

// File returns the file that was chosen for a field of a form with files; nil: none, or more than one.
func File(r *http.Request, name string) *multipart.FileHeader {
	if r.MultipartForm == nil || len(r.MultipartForm.File[name]) != 1 ||
		r.MultipartForm.File[name][0].Size == 0 {
		return nil
	}
	return r.MultipartForm.File[name][0]
}

// ReadFile reads a file of a form.
func ReadFile(file *multipart.FileHeader) ([]byte, error) {
	f, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is in memory
	return io.ReadAll(f)
}

// Single returns the one value of a parameter; two count as none, since it is not clear which is meant.
func Single(q url.Values, name string) string {
	if len(q[name]) != 1 {
		return ""
	}
	return q[name][0]
}

// CrossOrigin refuses posts that another site caused.
type CrossOrigin struct {
	protection *http.CrossOriginProtection
	https      bool
}

// NewCrossOrigin returns one for a checked base URL.
func NewCrossOrigin(base string) (*CrossOrigin, error) {
	c := &CrossOrigin{http.NewCrossOriginProtection(), strings.HasPrefix(base, "https:")}
	// If a proxy rewrites Host, a browser that does not send Sec-Fetch-Site can only be judged by the origin
	// that users see.
	if err := c.protection.AddTrustedOrigin(origin.Of(base)); err != nil {
		return nil, err
	}
	return c, nil
}

// errPlainOrigin: net/http compares only the host with the request's, since it does not know the scheme.
var errPlainOrigin = errors.New("its Origin is plain http, and this site is https")

// Check returns why a request is not from a page of this site.
func (c *CrossOrigin) Check(r *http.Request) error {
	if c.https && strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http:") {
		return errPlainOrigin
	}
	return c.protection.Check(r)
}
