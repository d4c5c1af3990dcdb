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
// its figures), and continues if one fails. A row that passed gets its result in the document, if the options
// say so. The error names the rows that failed.
func Run(ctx context.Context, proofs []Proof, o Options) error {
	document := filepath.Join(o.Root, Document)
	text, err := os.ReadFile(document) //nolint:gosec // the repository's
	if err != nil {
		return err
	}
	var failed error
	for _, p := range proofs {
		if missing := p.Missing(ctx); len(missing) > 0 {
			failed = errors.Join(failed, fmt.Errorf("%s needs Debian's %s: prove --install installs them",
				p.Name, strings.Join(missing, " ")))
			continue
		}
		for i, r := range row.FindAllSubmatch(text, -1) {
			if string(r[5]) != p.Name {
				continue
			}
			began, log := time.Now(), filepath.Join(o.Logs, fmt.Sprintf("%s-%d.log", p.Name, i+1))
			result, err := measure(ctx, o.Root, string(r[4]), log)
			took := time.Since(began).Round(time.Second)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w: see %s", r[4], err, log))
				_, _ = fmt.Fprintf(o.Out, "%s\tFAILED\t%s\t%s\n", p.Name, took, r[4])
				continue
			}
			_, _ = fmt.Fprintf(o.Out, "%s\tpassed\t%s\t%s\n", p.Name, took, result)
			if !o.Write {
				continue
			}
			result = time.Now().UTC().Format(time.DateOnly) + ": " + result
			text = bytes.Replace(text, r[0], bytes.Join([][]byte{r[1], []byte(result), r[3]}, nil), 1)
			if err := os.WriteFile(document, text, 0o644); err != nil { //nolint:gosec // a document
				return errors.Join(failed, err)
			}
		}
	}
	return failed
}

// measure runs a command, with what it prints in a file, and returns the figures that its tests have logged.
func measure(ctx context.Context, root, command, log string) (string, error) {
	file, err := os.Create(log) //nolint:gosec // in the folder of who runs it
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	// The document's own command line, as a reader would run it, but that no result is taken from the cache.
	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // see above
	cmd.Env = append(cmd.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -count=1"))
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, io.MultiWriter(&output, file), file
	if err := cmd.Run(); err != nil {
		return "", err
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
