// Package evidence writes what test runs have measured into docs/EVIDENCE.md.
//
// A row of a table there ends with a command, `go test …`. Its tests log their figures in lines that begin
// with "figures: ". These lines replace the row's cell before the command, with the date. A run that fails
// writes nothing.
package evidence

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

// row matches a table's row with a command: the part before the figures, the figures, and the command.
var row = regexp.MustCompile("(?m)^(\\| .+ \\| )([^|]*)( \\| `(go test [^`]+)` \\|)$")

// figures matches a line that a test has logged.
var figures = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: figures: (.+)$`)

// Write runs, in order, the commands of the rows that contain text, in the repository at root, and writes
// their figures into its document after each, with what they print going to log. It continues if a command
// fails, and returns what failed.
func Write(ctx context.Context, root, text string, log io.Writer) error {
	path := filepath.Join(root, Document)
	document, err := os.ReadFile(path) //nolint:gosec // the repository's
	if err != nil {
		return err
	}
	var failed error
	matched := false
	for _, r := range row.FindAllSubmatch(document, -1) {
		if !bytes.Contains(r[0], []byte(text)) {
			continue
		}
		matched = true
		_, _ = fmt.Fprintf(log, "%s\n", r[4])
		found, err := measure(ctx, root, string(r[4]), log)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r[4], err))
			continue
		}
		measured := time.Now().UTC().Format(time.DateOnly) + ": " + found
		document = bytes.Replace(document, r[0], bytes.Join([][]byte{r[1], []byte(measured), r[3]}, nil), 1)
		if err := os.WriteFile(path, document, 0o644); err != nil { //nolint:gosec // a document
			return errors.Join(failed, err)
		}
	}
	if !matched {
		return fmt.Errorf("%s has no row with a command and %q in it", Document, text)
	}
	return failed
}

// measure runs a command and returns the figures that its tests have logged.
func measure(ctx context.Context, root, command string, log io.Writer) (string, error) {
	// The document's own command line, as a reader would run it.
	cmd := exec.CommandContext(ctx, "sh", "-c", command+" -count=1") //nolint:gosec // see above
	if before, after, ok := strings.Cut(command, " -args "); ok {
		cmd.Args[2] = before + " -count=1 -args " + after
	}
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, io.MultiWriter(&output, log), log
	if err := cmd.Run(); err != nil {
		return "", err
	}
	var all []string
	for _, line := range figures.FindAllStringSubmatch(output.String(), -1) {
		all = append(all, strings.ReplaceAll(line[1], "|", "/"))
	}
	if len(all) == 0 {
		return "", errors.New(`it has logged no line that begins with "figures: "`)
	}
	return strings.Join(all, "; "), nil
}
