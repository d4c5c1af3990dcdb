// Package transfer brings the content of one store to another: from an embedded store to a cluster while the
// service runs, and into a backup and out of it again. All three read by the same reader and write by the
// same filler.
//
// The law:
//
//  1. A transfer copies messages: subject, data, and the header fields that are not the server's own. Each
//     one carries its origin (natsconf.Origin): its sequence there, when it was first stored, and when its
//     life ends. So a second run knows what it has brought already, from the new store alone, and nothing
//     lives longer for having been moved, but for the facts of an outcome: they stay ten minutes more, so
//     that none leaves before it. A message on a subject that is not its stream's stays behind: no
//     build has written it.
//  2. A store is filled by one filler at a time, and by nothing else: its state records that
//     (storestate.Record).
//  3. Order is kept within a stream, and a stream has no gap: a message is stored only after the one before
//     it.
//  4. A counter is not replayed but made equal. Hints are not carried: message schedules and the positions of
//     consumers follow from the facts.
//  5. The comparison covers what is stored: count and digest of all messages on both sides, whatever their
//     sequences.
//  6. A copy that is kept all the time (Copier) is a backup that grows: its manifest names a state that the
//     store was in, and that is on the disk. It is restored by the same law.
package transfer
