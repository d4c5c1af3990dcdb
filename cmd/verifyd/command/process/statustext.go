package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/service"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/topology"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
)

// Control sequences of terminals (ECMA-48): go to the first line, clear to the end of the line, clear to the
// end of the screen. Overwriting the text, instead of clearing first, does not flicker.
const (
	termHome      = "\x1b[H"
	termClear     = "\x1b[2J"
	termClearLine = "\x1b[K"
	termClearRest = "\x1b[J"
)

// watch reads the state repeatedly until ctx ends. A failed reading does not end it: the service may be
// coming back.
func (s Status) watch(ctx context.Context, c command.Console, st *store.Store,
	topology topology.Options) error {
	terminal := config.IsTerminal(c.Out) && !s.JSON
	if terminal {
		_, _ = io.WriteString(c.Out, termClear)
	}
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		doc, err := readStatus(ctx, st, topology)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			doc.OK, doc.Problems = false, append(doc.Problems, err.Error())
		}
		if err := s.show(c.Out, doc, terminal); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s Status) show(out io.Writer, doc *StatusDoc, terminal bool) error {
	var b bytes.Buffer
	switch {
	case s.JSON:
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(doc); err != nil {
			return err
		}
	case terminal:
		if err := doc.draw(&b); err != nil {
			return err
		}
		text := termHome + strings.ReplaceAll(b.String(), "\n", termClearLine+"\n") + termClearRest
		_, err := io.WriteString(out, text)
		return err
	default:
		fmt.Fprintln(&b, doc.line())
	}
	_, err := out.Write(b.Bytes())
	return err
}

// line formats a reading as one line.
func (d *StatusDoc) line() string {
	parts := []string{
		table.Exactly(d.At), d.word(), fmt.Sprintf("processes=%d", len(d.Processes)),
		fmt.Sprintf("waiting=%d given=%d scheduled=%d oldest=%s", d.Backlog.Waiting, d.Backlog.Given,
			d.Backlog.Scheduled, d.age()),
	}
	for _, v := range verdictOrder {
		parts = append(parts, fmt.Sprintf("%s=%d", v, d.Verdicts.By[v]))
	}
	parts = append(parts, fmt.Sprintf("unreached=%d paused=%d", len(d.Hosts), len(d.Paused)))
	for _, t := range d.Problems {
		parts = append(parts, "("+t+")")
	}
	return strings.Join(parts, " ")
}

func (d *StatusDoc) word() string {
	if d.OK {
		return "ok"
	}
	return "trouble"
}

// age is how long the oldest delivery has waited.
func (d *StatusDoc) age() string {
	if d.Backlog.Oldest == nil {
		return "-"
	}
	return max(d.At.Sub(*d.Backlog.Oldest), 0).Round(time.Second).String()
}

// verdictOrder is the order in which verdicts are shown.
var verdictOrder = []facts.Verdict{
	facts.VerdictDelivered, facts.VerdictRejected, facts.VerdictUnknown,
	facts.VerdictUndeliverable, facts.VerdictReleased,
}

// draw formats a reading for people.
func (d *StatusDoc) draw(out io.Writer) error {
	var b bytes.Buffer
	if d.OK {
		fmt.Fprintf(&b, "All is well, %s\n", table.Exactly(d.At))
	} else {
		fmt.Fprintf(&b, "Something is not well, %s\n", table.Exactly(d.At))
		for _, t := range d.Problems {
			fmt.Fprintf(&b, "  ! %s\n", t)
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	cluster := d.Server.Cluster
	if cluster == "" {
		cluster = "a single server"
	}
	_, _ = fmt.Fprintf(w, "\nServer\tNATS %s, %s, %s\n", d.Server.Version, cluster, d.Server.URL)
	_, _ = fmt.Fprintf(w, "Store\t%s\n", service.StoreUseText(d.Store.Used, d.Store.Limit))
	if d.Copy != nil {
		_, _ = fmt.Fprintf(w, "Copy\t%s\n", d.Copy)
	}
	if d.Records != nil {
		_, _ = fmt.Fprintf(w, "Records\t%s\n", d.Records)
	}
	_, _ = fmt.Fprintf(w,
		"Backlog\t%d waiting, %d with dispatchers, %d scheduled; the oldest has waited %s\n",
		d.Backlog.Waiting, d.Backlog.Given, d.Backlog.Scheduled, d.age())
	_, _ = fmt.Fprintf(w, "Verdicts\t%s\n", d.verdicts())
	for _, c := range d.Certificates {
		_, _ = fmt.Fprintf(w, "Certificate\t%s\n", timeline.Legible(c.Text(d.At)))
	}
	d.drawProcesses(w)
	d.drawStreams(w)
	d.drawHosts(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := out.Write(b.Bytes())
	return err
}

func (d *StatusDoc) verdicts() string {
	var parts []string
	for _, v := range verdictOrder {
		if n := d.Verdicts.By[v]; n > 0 || v != facts.VerdictReleased {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return strings.Join(parts, ", ") + ", since " + d.Verdicts.Since.UTC().Format(time.TimeOnly)
}

func (d *StatusDoc) drawProcesses(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\nPROCESS\tPID\tROLES\tVERSION\tUP\tREADY")
	for _, p := range d.Processes {
		ready := "yes"
		if !p.Ready {
			ready = "no"
		}
		if len(p.Degraded) > 0 {
			ready += ": " + reasons(p)
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", timeline.Legible(table.OrDash(p.Host)), p.PID,
			strings.Join(p.Roles, ","), timeline.Legible(p.Version),
			max(d.At.Sub(p.Since), 0).Round(time.Second), timeline.Legible(ready))
	}
	if len(d.Processes) == 0 {
		_, _ = fmt.Fprintln(w, "none answers")
	}
}

// reasons describes what is not well with a process.
func reasons(p fleet.Process) string {
	texts := make([]string, len(p.Degraded))
	for i, t := range p.Degraded {
		texts[i] = t.Check + ": " + t.Reason
	}
	return strings.Join(texts, "; ")
}

// drawStreams shows streams that share a leader and a number of copies as one line: embedded, all of them.
func (d *StatusDoc) drawStreams(w io.Writer) {
	_, _ = fmt.Fprintln(w, "\nLEADER\tCOPIES\tMESSAGES\tSIZE\tSTREAMS")
	type kind struct {
		leader          string
		current, copies int
	}
	var kinds []kind
	names, messages, size := map[kind][]string{}, map[kind]uint64{}, map[kind]uint64{}
	for _, s := range d.Streams {
		k := kind{s.Leader, s.Current, s.Copies}
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
		names[k] = append(names[k], s.Name)
		messages[k] += s.Messages
		size[k] += s.Bytes
	}
	for _, k := range kinds {
		_, _ = fmt.Fprintf(w, "%s\t%d of %d\t%d\t%s\t%s\n", table.OrDash(k.leader), k.current, k.copies,
			messages[k], sizeText(size[k]), strings.Join(names[k], " "))
	}
}

func sizeText(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (d *StatusDoc) drawHosts(w io.Writer) {
	if len(d.Hosts)+len(d.Paused) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nRECEIVER HOST\tSTATE\tSINCE\tWHY")
	for _, h := range d.Hosts {
		_, _ = fmt.Fprintf(w, "%s\tbreaker %s\t%s\t%s\n", timeline.Legible(h.Host), h.Breaker,
			table.Instant(h.Since), timeline.Legible(table.OrDash(h.Detail)))
	}
	for _, p := range d.Paused {
		why := "by " + p.By
		if p.Reason != "" {
			why += ": " + p.Reason
		}
		_, _ = fmt.Fprintf(w, "%s\tpaused until %s\t%s\t%s\n", timeline.Legible(p.Host),
			table.Instant(p.Until), table.Instant(p.At), timeline.Legible(why))
	}
}
