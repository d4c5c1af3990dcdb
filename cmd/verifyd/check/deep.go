package check

import (
	"errors"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/embedded"
)

// checkDeep reads every record of the embedded store. The service may run meanwhile.
func checkDeep(s *Survey, c config.Store) {
	if c.NATSURL != "" {
		s.Warn(recordsArea, "run verifyd check --files on each NATS server while that one is stopped",
			"--deep reads the files of an embedded store; this one is on NATS servers")
		return
	}
	minor, err := embedded.Inspect(c.DataDir, c.Sync)
	addMinor(s, "restart the service: the start mends it", minor)
	addDamage(s, "run verifyd recover, or restore a copy into another data directory", err)
}

// Files reads the records of a NATS server's store.
func (s *Survey) Files(dir string) {
	const do = "remove the damaged streams' folders while the server is stopped; when it starts, the other " +
		"servers fill them again"
	minor, err := embedded.InspectFiles(dir)
	addMinor(s, do, minor)
	addDamage(s, do, err)
}

// addMinor adds what an inspection found damaged and breaks no promise.
func addMinor(s *Survey, do string, minor []string) {
	for _, what := range minor {
		s.Warn(recordsArea, do, "%s", what)
	}
}

const recordsArea = "store's records"

// addDamage adds the findings of an inspection.
func addDamage(s *Survey, do string, err error) {
	damaged, ok := errors.AsType[*embedded.DamageError](err)
	switch {
	case ok:
		for _, d := range damaged.Damages {
			s.err(recordsArea, do, "%s", d)
		}
	case err != nil:
		s.err(recordsArea, "let this user read the files", "%s", err)
	default:
		s.ok(recordsArea, "every record is intact, and no required one is missing")
	}
}
