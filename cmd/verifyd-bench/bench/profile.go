package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// maxProfile is the longest profile: the operators' server ends answers after two minutes.
	maxProfile = 100 * time.Second
	// profileBytes is far more than a profile takes.
	profileBytes = 64 << 20
)

// profile is a CPU profile of the service, taken while a row is measured. It costs the service one or two
// hundredths.
type profile struct {
	dir, sync string
	done      chan struct{} // closed when data and err stand
	data      []byte
	err       error
}

// startProfile begins one that takes as long as a measurement, or gives nil where none is wanted.
func (s *service) startProfile() *profile {
	if s.o.Profile == "" {
		return nil
	}
	p := &profile{dir: s.o.Profile, sync: s.site.sync, done: make(chan struct{})}
	seconds := max(1, int(min(s.o.Duration, maxProfile).Round(time.Second).Seconds()))
	go func() {
		defer close(p.done)
		p.data, p.err = fetchProfile("http://"+s.admin+"/debug/pprof/profile?seconds="+strconv.Itoa(seconds),
			time.Duration(seconds)*time.Second)
	}()
	return p
}

func fetchProfile(url string, takes time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), takes+answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, profileBytes))
}

// keep waits for the profile and puts it into a file with the row's name. What fails is told as an error of
// the row.
func (p *profile) keep(s *sample) {
	if p == nil {
		return
	}
	<-p.done
	err := p.err
	if err == nil {
		err = os.WriteFile(p.file(s), p.data, 0o600)
	}
	if err != nil {
		s.errors++
		s.firstErr = fmt.Sprintf("take the profile: %v", err)
	}
}

// file names the first file that is not there yet: each run has one of its own.
func (p *profile) file(s *sample) string {
	name := strings.NewReplacer(" ", "-", "/", "-").Replace(Result{Row: s.row, Variant: s.variant}.label())
	for n := 1; ; n++ {
		path := filepath.Join(p.dir, fmt.Sprintf("%s-c%d-%s-%d.pb.gz", name, s.c, p.sync, n))
		if _, err := os.Stat(path); err != nil {
			return path
		}
	}
}
