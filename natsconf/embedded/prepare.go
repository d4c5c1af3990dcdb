package embedded

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

// prepare checks the store's files against what they must have, once, and makes them fit for the server. If
// the server is restarted in this process, what it held before is known.
func (f *files) prepare() error {
	if f.inspected {
		for _, name := range topology.StreamNames() {
			if err := storefile.Settle(f.streamFolder(name)); err != nil {
				return err
			}
		}
		return nil
	}
	found, err := f.inspect()
	if _, damaged := errors.AsType[*DamageError](err); err != nil && (!damaged || !f.recovering) {
		return err
	}
	f.settling.resume(found.witness, found.streams)
	if f.recovering {
		found.witness = initialWitness() // everything is redelivered; ended deliveries stay ended
	}
	if found.lost(topology.StreamRetries) && !found.lost(topology.StreamCompletions) {
		// What was acknowledged may have waited in a lost schedule, and its facts are whole. Without the loss
		// of a schedule it had ended, or waits; if facts are lost too, it may have ended: to deliver it again
		// could repeat a POST. Dispatchers find what is left without a schedule.
		found.witness.beginAnew()
	}
	if err := f.makeReady(found); err != nil {
		return err
	}
	f.minLast = map[string]uint64{}
	for name, s := range found.streams {
		if len(s.Blocks) > 0 && !slices.Contains(topology.Unsynced, name) {
			f.minLast[name] = s.Last
		}
	}
	if !found.lost(topology.StreamUsage) {
		f.counted = found.witness.mark(topology.StreamUsage)
	}
	f.inspected = true
	return nil
}

// remember records what a server that has stopped held, for its next start.
func (f *files) remember(marks []mark) {
	for _, m := range marks {
		if _, ok := f.minLast[m.Name]; ok {
			f.minLast[m.Name] = m.Last
		}
	}
}

// CheckServed compares what the server has read from the files with what they held. Its error is a
// *DamageError.
func (e *Server) CheckServed() error {
	ns, err := e.current()
	if err != nil {
		return err
	}
	return e.checkServed(ns)
}

func (f *files) checkServed(ns *server.Server) error {
	marks, err := marksOf(ns)
	if err != nil {
		return err
	}
	var damages []Damage
	for _, m := range marks {
		if minLast, ok := f.minLast[m.Name]; ok && m.Last < minLast {
			damages = append(damages, Damage{
				Stream: m.Name, What: whatDropped, Lost: minLast - m.Last,
			})
		}
		if c := f.counted; c != nil && m.Name == c.Name && m.First <= c.First && m.Messages < c.Messages {
			damages = append(damages, Damage{
				Stream: m.Name, What: "counters are missing", Lost: c.Messages - m.Messages,
			})
		}
	}
	if damages != nil {
		return &DamageError{Damages: damages}
	}
	return nil
}

// makeReady makes an undamaged store fit for its server: what is read from it is on the disk, and consumers
// go on from their known positions.
func (f *files) makeReady(found *inspection) error {
	for _, d := range found.minor {
		f.log.Warn().Str("stream", d.Stream).Uint64("lost", d.Lost).Str("stored", between(d.From, d.To)).
			Msg("messages that no promise depends on are lost: " + d.What)
	}
	for name, s := range found.streams {
		folder := f.streamFolder(name)
		if len(s.Holes) > 0 { // of streams that may lose it
			if err := storefile.Repair(folder, name, f.keepFolder(name)); err != nil {
				return err
			}
		}
		if w := found.witness; w != nil && w.Clean {
			if err := f.checkConsumers(folder, w.mark(name)); err != nil {
				return err
			}
			continue
		}
		if err := f.settle(folder, s, found.witness.mark(name)); err != nil {
			return err
		}
	}
	for _, fl := range found.flaws {
		if err := f.setAside(fl); err != nil {
			return fmt.Errorf("set aside what is damaged of %s: %w", fl.stream, err)
		}
	}
	if w := found.witness; w != nil && w.Clean {
		w.Clean = false
		return f.writeWitness(w)
	}
	return nil
}

// settle is for a store that was not closed. The file with a consumer's position has no checksum, and a wrong
// position would make outcomes count as delivered. So the messages after the last known position are
// delivered again, and the facts decide.
func (f *files) settle(folder string, s storefile.Stream, m *mark) error {
	if err := storefile.Settle(folder); err != nil {
		return err
	}
	if m == nil {
		return nil
	}
	for _, c := range m.Consumers {
		// A consumer that is past the end of its stream would leave out what takes those sequences again.
		c.Stream = min(c.Stream, s.Last)
		if err := storefile.SetConsumer(folder, c.Name, c.Position); err != nil {
			return fmt.Errorf("set consumer %s: %w", c.Name, err)
		}
	}
	return nil
}

// setAside removes what is damaged, and keeps it in another folder. Whoever opens the store makes the
// settings anew, from the table, and the files with messages and positions count on.
func (f *files) setAside(fl flaw) error {
	folder, keep := f.streamFolder(fl.stream), f.keepFolder(fl.stream)
	f.log.Warn().Str("stream", fl.stream).Str("consumer", fl.consumer).Str("kept", f.relative(keep)).
		Msg(fl.String())
	switch {
	case fl.position:
		if err := storefile.SetPositionAside(folder, fl.consumer, keep); err != nil {
			return err
		}
		// Without a position, the consumer of the audit log would begin with what is new. Whoever takes its
		// messages again finds what became of them.
		return storefile.SetConsumer(folder, fl.consumer, storefile.Position{})
	case fl.consumer == "":
		f.keep[fl.stream] = fl.keep
	}
	return storefile.SetSettingsAside(folder, fl.consumer, keep)
}

// KeepAsBefore changes the settings of streams that a command may have to make anew: none keeps its messages
// for less time than before the damage. A shorter age would remove messages at once.
func (f *files) KeepAsBefore(streams []jetstream.StreamConfig) {
	for i := range streams {
		if streams[i].MaxAge > 0 {
			streams[i].MaxAge = max(streams[i].MaxAge, f.keep[streams[i].Name])
		}
	}
}

// checkConsumers sets the positions of consumers whose files are not as the stop left them.
func (f *files) checkConsumers(folder string, m *mark) error {
	if m == nil {
		return nil
	}
	for _, c := range m.Consumers {
		digest, err := storefile.ConsumerDigest(folder, c.Name)
		if err != nil {
			return fmt.Errorf("read consumer %s: %w", c.Name, err)
		}
		if digest == c.Digest {
			continue
		}
		f.log.Warn().Str("consumer", c.Name).Uint64("sequence", c.Stream).
			Msg("the file with a consumer's position was changed or damaged: it goes on from where it " +
				"is known to have been")
		if err := storefile.SetConsumer(folder, c.Name, c.Position); err != nil {
			return fmt.Errorf("set consumer %s: %w", c.Name, err)
		}
	}
	return nil
}
