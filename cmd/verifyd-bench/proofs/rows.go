package proofs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Document is the file's path in the repository.
const Document = "docs/EVIDENCE.md"

// row matches a table's row with a command: the part before its result, the result, and the command, whose
// first proof's name is a group of its own.
var row = regexp.MustCompile("(?m)^(\\| .+ \\| )([^|]*)( \\| `(VERIFYD_PROVE=([a-z]+)[^`]*)` \\|)$")

// figures matches a line that a test has logged.
var figures = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: figures: (.+)$`)

// Options say how proofs are run.
type Options struct {
	Root  string    // of the repository
	Logs  string    // the folder for what tests print
	Write bool      // write results into the document
	Out   io.Writer // a line for each command
}

// Run runs the rows of proofs, each alone, prints a line for each (its proof, whether it passed, its seconds,
// its figures), and continues if one fails. A command that stands in several rows is run once. A row that
// passed gets its result in the document, if the options say so. The error names the rows that failed.
func Run(ctx context.Context, proofs []Proof, o Options) error {
	document := filepath.Join(o.Root, Document)
	text, err := os.ReadFile(document) //nolint:gosec // the repository's
	if err != nil {
		return err
	}
	rows := row.FindAllSubmatch(text, -1)
	var failed error
	ran := map[string]bool{}
	for _, p := range proofs {
		if missing := p.Missing(ctx); len(missing) > 0 {
			_, _ = fmt.Fprintf(o.Out, "%s\tlacks Debian's %s: prove --install %s\n", p.Name,
				strings.Join(missing, " "), p.Name)
		}
		for i, r := range rows {
			command := string(r[4])
			if string(r[5]) != p.Name || ran[command] {
				continue
			}
			if ctx.Err() != nil {
				return errors.Join(failed, ctx.Err())
			}
			ran[command] = true
			log := filepath.Join(o.Logs, fmt.Sprintf("%s-%d.log", p.Name, i+1))
			result, err := o.runRow(ctx, p, command, log)
			failed = errors.Join(failed, err)
			if err != nil || !o.Write {
				continue
			}
			text = write(text, command, time.Now().UTC().Format(time.DateOnly)+": "+result)
			if err := os.WriteFile(document, text, 0o644); err != nil { //nolint:gosec // a document
				return errors.Join(failed, err)
			}
		}
	}
	return failed
}

// runRow runs a row's command, prints its line, and returns its result.
func (o Options) runRow(ctx context.Context, p Proof, command, log string) (result string, err error) {
	began := time.Now()
	result, err = measure(ctx, o.Root, command, log)
	took := time.Since(began).Round(time.Second)
	if err != nil {
		_, _ = fmt.Fprintf(o.Out, "%s\tFAILED\t%s\t%s\n", p.Name, took, command)
		return "", fmt.Errorf("%s: %w: see %s", command, err, log)
	}
	_, _ = fmt.Fprintf(o.Out, "%s\tpassed\t%s\t%s\n", p.Name, took, result)
	return result, nil
}

// write returns the document with the result in all rows of a command.
func write(document []byte, command, result string) []byte {
	return row.ReplaceAllFunc(document, func(of []byte) []byte {
		r := row.FindSubmatch(of)
		if string(r[4]) != command {
			return of
		}
		return bytes.Join([][]byte{r[1], []byte(result), r[3]}, nil)
	})
}

// passedTest matches the line of a test that passed, with -v.
var passedTest = regexp.MustCompile(`(?m)^--- PASS: `)

// measure runs a command, with what it prints in a file, and returns the figures that its tests have logged.
func measure(ctx context.Context, root, command, log string) (string, error) {
	file, err := os.Create(log) //nolint:gosec // in the folder of who runs it
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	// The document's own command line, as a reader would run it, except that no result is taken from the
	// cache, and that each test says that it has run. What chooses other servers is for the command to say.
	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // see above
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "VERIFYD_TEST_CLUSTER=")
	})
	cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -count=1 -v"))
	stopGently(cmd)
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, io.MultiWriter(&output, file), file
	if err := cmd.Run(); err != nil {
		return "", err
	}
	if strings.Contains(command, "go test ") && !passedTest.Match(output.Bytes()) {
		return "", errors.New("no test has run")
	}
	if !strings.Contains(command, " -v") { // the figures are those of other tests
		return "passed", nil
	}
	var all []string
	for _, line := range figures.FindAllStringSubmatch(output.String(), -1) {
		all = append(all, strings.ReplaceAll(line[1], "|", "/"))
	}
	if len(all) == 0 {
		return "passed", nil
	}
	return strings.Join(all, "; "), nil
}
